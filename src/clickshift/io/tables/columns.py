"""Columns of a table, whatever types a file gives them, as numpy arrays with a mask of what is not usable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from clickshift.data.vocabulary import Raw
from clickshift.io.tables.formats import integers_or_text
from clickshift.io.tables.json_lines import ColumnError, read_json_lines

ArrowArray = Any  # a pyarrow.ChunkedArray

_TRUTH = {"true": "1", "false": "0"}


@dataclass(frozen=True, eq=False)
class Column:
    """One value per row: numbers, datetimes, or places in `texts`."""

    values: np.ndarray
    bad: Bool[np.ndarray, " row"]
    """Where there is no value, or none of the right kind; `values` means nothing there."""
    texts: Any = None
    """The distinct texts, a pyarrow array, for a column of text ids."""

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: np.ndarray) -> Column:
        return Column(self.values[rows], self.bad[rows], self.texts)

    def ids(self) -> Raw:
        """What `vocabulary.encode` takes; there must be no bad row."""
        import pyarrow as pa

        if self.texts is None:
            return self.values
        return pa.DictionaryArray.from_arrays(pa.array(self.values, pa.int32()), self.texts)

    def show(self, row: int) -> str:
        """A value as plain text."""
        return str(self.values[row] if self.texts is None else self.texts[self.values[row]])


@dataclass(frozen=True, eq=False)
class ListColumn:
    """One list per row, and the items of all of them one after the other."""

    length: Int[np.ndarray, " row"]
    bad: Bool[np.ndarray, " row"]
    items: Column


def id_column(name: str, parts: Sequence[ArrowArray]) -> Column:
    """Raw ids, integers or text. Where one file has integers and another one text, all of them are text."""
    import pyarrow as pa

    chosen = [_ids(name, part) for part in parts]
    if len({part.type for part in chosen}) > 1:
        chosen = [part if pa.types.is_dictionary(part.type) else _as_text(part) for part in chosen]
    column = pa.chunked_array([chunk for part in chosen for chunk in part.chunks], chosen[0].type)
    if not pa.types.is_dictionary(column.type):
        return _numbers(column)
    array = column.unify_dictionaries().combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    places = _numbers(array.indices)
    return Column(places.values, places.bad, array.dictionary)


def number_column(name: str, parts: Sequence[ArrowArray]) -> Column:
    return _joined(name, [_parsed(name, part, ("int64", "float64")) for part in parts])


def time_column(name: str, parts: Sequence[ArrowArray]) -> Column:
    """Numbers, dates or timestamps. A time zone is converted to UTC."""
    units = ("s", "ms", "us", "ns")
    kinds = ("int64", "float64", "date32", *(f"timestamp {unit}" for unit in units), *(f"utc {unit}" for unit in units))
    return _joined(name, [_parsed(name, part, kinds) for part in parts])


def list_column(name: str, parts: Sequence[ArrowArray]) -> ListColumn:
    """Lists of ids ("docs") or of numbers; in text, JSON lists or items between blanks."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths, items = [], []
    for part in parts:
        column = _lists_in_text(name, part) if _is_text(part.type) else part
        if pa.types.is_fixed_size_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        if pa.types.is_null(column.type):
            column = column.cast(pa.list_(pa.int64()))
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            raise ColumnError(name, f"must hold lists: got {column.type}")
        lengths.append(_numbers(pc.list_value_length(column)))
        flat = [chunk.flatten() for chunk in column.chunks]
        items.append(pa.chunked_array(flat, column.type.value_type))
    length = _joined(name, lengths)
    of = id_column if name == "docs" else number_column
    return ListColumn(length.values.astype(np.int64), length.bad, of(name, items))


def _ids(name: str, column: ArrowArray) -> ArrowArray:
    """64-bit integers, or 32-bit places in a dictionary of text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if kind == pa.dictionary(pa.int32(), pa.string()) and not any(c.dictionary.null_count for c in column.chunks):
        return column
    try:
        if _is_text(kind):
            return column.cast(pa.string()).dictionary_encode()
        if pa.types.is_dictionary(kind):
            return _ids(name, column.cast(kind.value_type))
        if pa.types.is_unsigned_integer(kind):  # beyond 63 bits (a hash, say) the decimal text is the id
            largest = pc.max(column).as_py() or 0
            return _as_text(column) if largest > np.iinfo(np.int64).max else column.cast(pa.int64())
        if not pa.types.is_boolean(kind) and not pa.types.is_temporal(kind):
            return column.cast(pa.int64())  # from floats and decimals only if they are whole
    except pa.ArrowException:
        pass
    raise ColumnError(name, f"must hold ids, integers or text: got {kind}. Convert them first")


def _as_text(column: ArrowArray) -> ArrowArray:
    import pyarrow as pa

    return column.cast(pa.string()).dictionary_encode()


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_binary)
    return any(test(kind) for test in tests)


def _numbers(array: Any) -> Column:
    """A pyarrow array of numbers, dates or timestamps."""
    import pyarrow as pa

    kind, unit = array.type, None
    if pa.types.is_date32(kind):
        array, unit = array.cast(pa.int32()).cast(pa.int64()), "D"
    elif pa.types.is_date64(kind) or pa.types.is_timestamp(kind):
        array, unit = array.cast(pa.int64()), getattr(kind, "unit", "ms")  # since 1970 in UTC, whatever the zone
    elif pa.types.is_boolean(kind) or pa.types.is_null(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    bad = np.zeros(len(array), bool)
    if array.null_count:
        bad = np.array(array.is_null())
        array = array.fill_null(0)
    values = np.asarray(array)
    if values.dtype.kind == "f":
        bad = bad | np.isnan(values)
    return Column(values if unit is None else values.view(f"datetime64[{unit}]"), bad)


def _parsed(name: str, column: ArrowArray, kinds: Sequence[str]) -> Column:
    """Numbers or times, also where they are text; text is parsed once per distinct value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _is_text(column.type):
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
        times = (pa.types.is_date, pa.types.is_timestamp)
        if not any(test(column.type) for test in (*known, *(times if "date32" in kinds else ()))):
            raise ColumnError(name, f"must hold {'times' if 'date32' in kinds else 'numbers'}: got {column.type}")
        return _numbers(column)
    texts, place = _distinct_texts(column)
    lowered = pc.utf8_lower(texts)
    for word, digit in _TRUTH.items():
        texts = pc.if_else(pc.equal(lowered, word), digit, texts)
    # the type that the first texts fit best, the simplest of equals
    head = texts[:100]
    fit = [len(head) - _cast(head, _type(kind)).null_count for kind in kinds]
    parsed = _numbers(_cast(texts, _type(kinds[int(np.argmax(fit))])))
    if not len(texts):
        return Column(np.zeros(len(place), np.int64), place.bad)
    return Column(parsed.values[place.values], place.bad | parsed.bad[place.values])


def _type(kind: str) -> Any:
    import pyarrow as pa

    name, _, unit = kind.partition(" ")
    if name == "utc":
        return pa.timestamp(unit, "UTC")
    return pa.timestamp(unit) if unit else getattr(pa, name)()


def _cast(texts: Any, kind: Any) -> Any:
    """Texts as values of a type, nothing where a text is none: found by halving, for few are expected."""
    import pyarrow as pa

    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
        half = len(texts) // 2
        return pa.concat_arrays([_cast(texts[:half], kind), _cast(texts[half:], kind)])


def _distinct_texts(column: ArrowArray) -> tuple[Any, Column]:
    import pyarrow as pa

    column = _ids("", column)
    array = column.unify_dictionaries().combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return array.dictionary.cast(pa.string()), _numbers(array.indices)


def _lists_in_text(name: str, column: ArrowArray) -> ArrowArray:
    """JSON lists where the first text begins with a bracket, otherwise items between blanks; null for other texts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts, place = _distinct_texts(column)
    texts = pc.utf8_trim_whitespace(texts)
    if not len(texts):
        return pa.chunked_array([pa.nulls(len(column), pa.list_(pa.int64()))])
    if texts[0].as_py().startswith("["):
        lists = _json_lists(texts)
    else:
        split = pc.utf8_split_whitespace(pc.if_else(pc.equal(texts, ""), None, texts))
        items = split.flatten()
        if name == "docs":
            items = integers_or_text(pa.chunked_array([items])).combine_chunks()
        lists = pa.ListArray.from_arrays(split.offsets, items, mask=split.is_null())
    return pa.chunked_array([lists.take(pa.array(place.values, mask=place.bad))])


def _json_lists(texts: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    one_line = pc.replace_substring_regex(texts, r"[\r\n]", " ")  # between items: JSON has no bare line end within one
    joined = pc.binary_join_element_wise('{"list": ', one_line, "}", "")
    data = "\n".join(joined.to_pylist()).encode()
    table, unreadable = read_json_lines(data, lambda names: {"list": "list"})
    readable = np.ones(len(texts), bool)
    readable[[line - 1 for line, _ in unreadable]] = False
    return table["list"].combine_chunks().take(pa.array(np.cumsum(readable) - 1, mask=~readable))


def _joined(name: str, parts: Sequence[Column]) -> Column:
    try:
        values = np.concatenate([part.values for part in parts]) if len(parts) > 1 else parts[0].values
    except TypeError:
        kinds = " and ".join(sorted({str(part.values.dtype) for part in parts}))
        raise ColumnError(name, f"must be of one kind in all files: got {kinds}") from None
    return Column(values, np.concatenate([part.bad for part in parts]) if len(parts) > 1 else parts[0].bad)
