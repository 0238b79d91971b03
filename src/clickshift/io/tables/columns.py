"""Columns of a log's table: whatever types a file or a data frame gives them, numpy arrays with unusable values marked.

Ids are integers or text, times are recognised by their size, and lists are those of Arrow, JSON or separated text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from clickshift.data.segments import segment_of_arrow
from clickshift.data.vocabulary import Raw
from clickshift.errors import DataError
from clickshift.io.tables.formats import ColumnError, integers_or_text, read_json_lines

ArrowArray = Any  # a pyarrow.ChunkedArray

_EPOCH = (631_152_000, 4_102_444_800)  # the years 1990 to 2100, in seconds since 1970
_EPOCH_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
FLOAT_TEXT = r"^-?[0-9]+\.0+$"
"""Pattern of text that is a whole number written as a float."""
_BOOLEAN_TEXTS = {"true": "1", "false": "0"}
_MISSING_TEXTS = ("nan", "na", "null")
"""Texts in place of numbers that stand for a missing one, in any case: Polars, R and databases write them."""


@dataclass(frozen=True, eq=False)
class Column:
    """A column with one value per row.

    Parameters
    ----------
    values
        Numbers, datetimes, or indices into `texts`.
    bad
        Mask of the rows with no value, or none of the right type; `values` is meaningless there.
    texts
        The distinct texts of a column of text ids, a pyarrow array; None for other columns.
    unparsable
        Mask of those bad rows of a column of numbers that have a text which is none; None if there are none.
    """

    values: np.ndarray
    bad: Bool[np.ndarray, " row"]
    texts: Any = None
    unparsable: Bool[np.ndarray, " row"] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: np.ndarray) -> Column:
        unparsable = None if self.unparsable is None else self.unparsable[rows]
        return Column(self.values[rows], self.bad[rows], self.texts, unparsable)

    def ids(self) -> Raw:
        """Return the raw ids as `data.vocabulary.encode_ids` takes them; there must be no bad row."""
        import pyarrow as pa

        if self.texts is None:
            return self.values
        return pa.DictionaryArray.from_arrays(pa.array(self.values, pa.int32()), self.texts)

    def show(self, row: int) -> str:
        """Return the value of a row as plain text."""
        return str(self.values[row] if self.texts is None else self.texts[self.values[row]])


@dataclass(frozen=True, eq=False)
class ListColumn:
    """A column with one list per row.

    Parameters
    ----------
    length
        Number of items of each list.
    bad
        Mask of the rows without a list.
    items
        Items of all lists, concatenated.
    """

    length: Int[np.ndarray, " row"]
    bad: Bool[np.ndarray, " row"]
    items: Column


def id_column(name: str, parts: Sequence[ArrowArray]) -> Column:
    """Convert a column of raw ids, one pyarrow array per file.

    Parameters
    ----------
    name
        Name of the column, for errors.
    parts
        The column in each file. If one file has integers and another one text, all ids become text.

    Returns
    -------
    Column
        64-bit integers, or indices into the distinct texts.

    Raises
    ------
    ColumnError
        If the values are neither integers nor text.
    """
    import pyarrow as pa

    converted = [_ids(name, part) for part in parts]
    if len({part.type for part in converted}) > 1:
        converted = [part if pa.types.is_dictionary(part.type) else _as_text(part) for part in converted]
    column = pa.chunked_array([chunk for part in converted for chunk in part.chunks], converted[0].type)
    if not pa.types.is_dictionary(column.type):
        return _to_numpy(column)
    array = column.unify_dictionaries().combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    indices = _to_numpy(array.indices)
    check_no_floats(name, array.dictionary)
    return Column(indices.values, indices.bad, array.dictionary)


def number_column(name: str, parts: Sequence[ArrowArray]) -> Column:
    """Convert a column of numbers, one pyarrow array per file; text is parsed, ColumnError for other types."""
    return _parse(name, parts, ("int64", "float64"))


def segment_column(name: str, parts: Sequence[ArrowArray]) -> Column:
    """Convert a column of labels, one pyarrow array per file: text, or numbers and truth values, which become text.

    Parameters
    ----------
    name
        Name of the column, for errors.
    parts
        The column in each file. A missing value and an empty text are unknown.

    Returns
    -------
    Column
        Indices into the sorted labels, -1 where a label is unknown.

    Raises
    ------
    ColumnError
        If the values are lists ("bad-column"), or there are more than 1,000 labels ("too-many-segments").
    """
    import pyarrow as pa

    try:
        chunks = [chunk for part in parts for chunk in part.cast(pa.string()).chunks]
        segment = segment_of_arrow(pa.chunked_array(chunks, pa.string()).combine_chunks())
    except pa.ArrowException:
        raise ColumnError(name, f"must hold labels, text or numbers: got {parts[0].type}") from None
    except DataError as error:
        raise ColumnError(name, str(error).removeprefix("a segment ").removesuffix("."), code=error.code) from None
    return Column(segment.code, np.zeros(len(segment), bool), pa.array(segment.labels, pa.string()))


def time_column(name: str, parts: Sequence[ArrowArray]) -> Column:
    """Convert a column of numbers, dates or timestamps, one pyarrow array per file; time zones become UTC."""
    units = ("s", "ms", "us", "ns")
    types = ("int64", "float64", "date32", *(f"timestamp {unit}" for unit in units), *(f"utc {unit}" for unit in units))
    return _as_epoch(_parse(name, parts, types))


def _as_epoch(column: Column) -> Column:
    """Convert numbers that are seconds, milli-, micro- or nanoseconds since 1970 to times; others are day numbers.

    They are if all of them lie between 1990 and 2100 in that unit: no day number is that large.
    """
    values = column.values
    if values.dtype.kind not in "iuf" or not len(values):
        return column
    given = values[~column.bad] if column.bad.any() else values
    for unit, factor in _EPOCH_UNITS.items():
        if len(given) and given.min() >= _EPOCH[0] * factor and given.max() < _EPOCH[1] * factor:
            if values.dtype.kind == "f":
                values, unit = np.where(column.bad, 0, values) * (_EPOCH_UNITS["us"] / factor), "us"
                values = np.rint(values)
            return Column(values.astype(np.int64).view(f"datetime64[{unit}]"), column.bad)
    return column


def list_column(name: str, parts: Sequence[ArrowArray]) -> ListColumn:
    """Convert a column of lists, one pyarrow array per file.

    Parameters
    ----------
    name
        Name of the column: "docs" has lists of ids, other columns have lists of numbers.
    parts
        The column in each file: lists, or text with JSON lists or items separated by white space.

    Returns
    -------
    ListColumn
        Lengths, and the concatenated items.

    Raises
    ------
    ColumnError
        If the column has no lists, or their items have the wrong type.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths: list[Any] = []
    items: list[Any] = []
    for part in parts:
        column = _parse_lists(name, part) if _is_text(part.type) else part
        if pa.types.is_fixed_size_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        if pa.types.is_null(column.type):
            column = column.cast(pa.list_(pa.int64()))
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise ColumnError(name, f"must hold lists: got {column.type}")
        lengths += pc.list_value_length(column).cast(pa.int64()).chunks
        flat = [chunk.flatten() for chunk in column.chunks]
        items.append(pa.chunked_array(flat, column.type.value_type))
    length = _to_numpy(pa.chunked_array(lengths, pa.int64()))
    if name != "docs":
        return ListColumn(length.values, length.bad, number_column(name, items))
    return ListColumn(length.values, length.bad, id_column(name, [_integers_with_holes(part) for part in items]))


def _integers_with_holes(items: ArrowArray) -> ArrowArray:
    """Return the items of lists as integers if table libraries made them floats because some are missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(items.type):
        return items
    missing = pc.is_null(items, nan_is_null=True)
    try:
        integers = pc.if_else(missing, None, items).cast(pa.int64())
    except pa.ArrowInvalid:  # not whole numbers
        return items
    return integers if pc.any(missing).as_py() else items


def _ids(name: str, column: ArrowArray) -> ArrowArray:
    """Convert raw ids to 64-bit integers, or to 32-bit indices into a dictionary of text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    arrow_type = column.type
    if arrow_type == pa.dictionary(pa.int32(), pa.string()) and not any(c.dictionary.null_count for c in column.chunks):
        return column
    try:
        if _is_text(arrow_type):
            return column.cast(pa.string()).dictionary_encode()
        if pa.types.is_dictionary(arrow_type):
            return _ids(name, column.cast(arrow_type.value_type))
        if pa.types.is_unsigned_integer(arrow_type):  # beyond 63 bits (e.g. a hash) the decimal text is the id
            largest = pc.max(column).as_py() or 0
            return _as_text(column) if largest > np.iinfo(np.int64).max else column.cast(pa.int64())
        if pa.types.is_floating(arrow_type):
            raise float_ids(name, f"{arrow_type}, e.g. {pc.drop_null(column)[:1].to_pylist()}")
        if not pa.types.is_boolean(arrow_type) and not pa.types.is_temporal(arrow_type):
            return column.cast(pa.int64())  # from decimals only if they are integers
    except pa.ArrowException:
        pass
    raise ColumnError(name, f"must hold ids, integers or text: got {arrow_type}. Convert them first")


def check_no_floats(name: str, texts: Any) -> None:
    """Raise if all texts of a column of ids are floats such as "12.0": integers that a table library converted.

    Parameters
    ----------
    name
        Name of the column.
    texts
        The distinct texts, a pyarrow array.

    Raises
    ------
    ColumnError
        With code "float-ids".
    """
    import pyarrow.compute as pc

    some = (texts[:1], texts) if len(texts) else ()  # the first text alone mostly decides
    if some and all(pc.all(pc.match_substring_regex(part, FLOAT_TEXT)).as_py() for part in some):
        raise float_ids(name, f"text such as {texts[0]}")


def float_ids(name: str, found: str) -> ColumnError:
    """Return the error of ids that are floats, e.g. `found`: integers that a table library converted."""
    return ColumnError(
        name,
        f"must hold ids, integers or text: got {found}. Integers become floats where some are missing: remove those "
        'rows, then convert the column, e.g. with astype("int64")',
        code="float-ids",
    )


def _as_text(column: ArrowArray) -> ArrowArray:
    """Convert a column to dictionary-encoded text."""
    import pyarrow as pa

    return column.cast(pa.string()).dictionary_encode()


def _is_text(arrow_type: Any) -> bool:
    """Return whether a pyarrow type, or the value type of a dictionary, is text."""
    import pyarrow as pa

    value_type = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
    return any(test(value_type) for test in tests)


def _to_numpy(array: Any) -> Column:
    """Convert a pyarrow array of numbers, dates or timestamps; nulls and NaN are bad."""
    import pyarrow as pa

    arrow_type, unit = array.type, None
    if pa.types.is_date32(arrow_type):
        array, unit = array.cast(pa.int32()).cast(pa.int64()), "D"
    elif pa.types.is_date64(arrow_type) or pa.types.is_timestamp(arrow_type):
        array, unit = array.cast(pa.int64()), getattr(arrow_type, "unit", "ms")  # since 1970 in UTC, for every zone
    elif pa.types.is_boolean(arrow_type) or pa.types.is_null(arrow_type):
        array = array.cast(pa.int8())
    elif pa.types.is_decimal(arrow_type):
        array = array.cast(pa.float64())
    bad = np.zeros(len(array), bool)
    if array.null_count:
        bad = np.array(array.is_null())
        array = array.fill_null(0)
    values = np.asarray(array)
    if values.dtype.kind == "f":
        bad = bad | np.isnan(values)
    return Column(values if unit is None else values.view(f"datetime64[{unit}]"), bad)


def _parse(name: str, parts: Sequence[ArrowArray], types: Sequence[str]) -> Column:
    """Convert numbers or times of several files, also those written as text."""
    import pyarrow as pa

    is_type = pa.types
    allowed = [is_type.is_integer, is_type.is_floating, is_type.is_boolean, is_type.is_decimal, is_type.is_null]
    if "date32" in types:
        allowed += [is_type.is_date, is_type.is_timestamp]
    columns = []
    for part in parts:
        if _is_text(part.type):
            columns.append(_parse_text(part, types))
            continue
        column = part.cast(part.type.value_type) if is_type.is_dictionary(part.type) else part
        if not any(test(column.type) for test in allowed):
            raise ColumnError(name, f"must hold {'times' if 'date32' in types else 'numbers'}: got {column.type}")
        columns.append(_to_numpy(column))
    if len(columns) == 1:
        return columns[0]
    try:
        values = np.concatenate([column.values for column in columns])
    except TypeError:
        dtypes = " and ".join(sorted({str(column.values.dtype) for column in columns}))
        raise ColumnError(name, f"must have one type in all files: got {dtypes}") from None
    unparsable = None
    if any(column.unparsable is not None for column in columns):
        masks = [np.zeros(len(one), bool) if one.unparsable is None else one.unparsable for one in columns]
        unparsable = np.concatenate(masks)
    return Column(values, np.concatenate([column.bad for column in columns]), unparsable=unparsable)


def _parse_text(column: ArrowArray, types: Sequence[str]) -> Column:
    """Parse numbers or times in texts, once per distinct text; the type is the one that fits most of the first ones."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts, index = _distinct_texts(column)
    lowered = pc.utf8_lower(texts)
    for word, digit in _BOOLEAN_TEXTS.items():
        texts = pc.if_else(pc.equal(lowered, word), digit, texts)
    missing = pc.is_in(lowered, pa.array(_MISSING_TEXTS))
    texts = pc.if_else(missing, pa.scalar(None, texts.type), texts)
    # the simplest type of a tie
    head = texts[:100]
    n_valid = [len(head) - _cast(head, _arrow_type(kind)).null_count for kind in types]
    kind = types[int(np.argmax(n_valid))]
    values = _cast(texts, _arrow_type(kind))
    if values.null_count and " " in kind:  # some times with a zone and some without, which are in UTC
        unit = kind.split()[1]
        others = _cast(texts, _arrow_type(f"{'timestamp' if kind.startswith('utc') else 'utc'} {unit}"))
        values = pc.coalesce(*(times.cast(pa.timestamp(unit, "UTC")) for times in (values, others)))
    parsed = _to_numpy(values)
    if not len(texts):
        return Column(np.zeros(len(index), np.int64), index.bad)
    unparsable = (parsed.bad & ~np.asarray(missing))[index.values] & ~index.bad if parsed.bad.any() else None
    return Column(parsed.values[index.values], index.bad | parsed.bad[index.values], unparsable=unparsable)


def _arrow_type(text: str) -> Any:
    """Return the pyarrow type of a name such as "int64", "timestamp ms" or "utc ms"."""
    import pyarrow as pa

    name, _, unit = text.partition(" ")
    if name == "utc":
        return pa.timestamp(unit, "UTC")
    return pa.timestamp(unit) if unit else getattr(pa, name)()


def _cast(texts: Any, arrow_type: Any) -> Any:
    """Cast texts to a type, with null for those that do not parse: found by bisection, because few are expected."""
    import pyarrow as pa

    try:
        return texts.cast(arrow_type)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, arrow_type)
        half = len(texts) // 2
        return pa.concat_arrays([_cast(texts[:half], arrow_type), _cast(texts[half:], arrow_type)])


def _distinct_texts(column: ArrowArray) -> tuple[Any, Column]:
    """Return the distinct texts of a column, and the index of every row's text."""
    import pyarrow as pa

    column = _ids("", column)
    array = column.unify_dictionaries().combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return array.dictionary.cast(pa.string()), _to_numpy(array.indices)


def _parse_lists(name: str, column: ArrowArray) -> ArrowArray:
    """Parse lists in texts: JSON if the first text starts with a bracket, else items separated by white space.

    Texts that do not parse become null.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts, index = _distinct_texts(column)
    texts = pc.utf8_trim_whitespace(texts)
    if not len(texts):
        return pa.chunked_array([pa.nulls(len(column), pa.list_(pa.int64()))])
    if texts[0].as_py().startswith("["):
        lists = _parse_json_lists(texts)
    else:
        split = pc.utf8_split_whitespace(pc.if_else(pc.equal(texts, ""), None, texts))
        items = split.flatten()
        if name == "docs":
            items = integers_or_text(pa.chunked_array([items])).combine_chunks()
        lists = pa.ListArray.from_arrays(split.offsets, items, mask=split.is_null())
    return pa.chunked_array([lists.take(pa.array(index.values, mask=index.bad))])


def _parse_json_lists(texts: Any) -> Any:
    """Parse texts that are JSON lists, as one JSON object per line; null for those that do not parse."""
    import pyarrow as pa
    import pyarrow.compute as pc

    one_line = pc.replace_substring_regex(texts, r"[\r\n]", " ")  # between items: JSON has no bare line end within one
    joined = pc.binary_join_element_wise('{"list": ', one_line, "}", "")
    data = "\n".join(joined.to_pylist()).encode()
    table, unreadable = read_json_lines(data, lambda names: {"list": "list"})
    readable = np.ones(len(texts), bool)
    readable[[line - 1 for line, _ in unreadable]] = False
    return table["list"].combine_chunks().take(pa.array(np.cumsum(readable) - 1, mask=~readable))
