"""Recorded loads read from files of several forms."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from anabranch.workloads.curves import CurveError, Trace
from anabranch.workloads.traces import Recording, read_recording

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "load"


def written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    raw = text.encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_a_time_stamp_and_a_value_per_interval(tmp_path: Path, name: str) -> None:
    text = "timestamp,value\n2015-02-26 21:42:53,104\n2015-02-26 21:47:53,100\n"
    path = written(tmp_path, name, text)
    assert read_recording(path) == Recording((104, 100), 300)


def test_a_missing_interval_repeats_the_one_before(tmp_path: Path) -> None:
    minutes = "".join(f"1998-04-30 21:{m}:00,{m}\n" for m in (30, 31, 32, 35, 36))
    path = written(tmp_path, "a.csv", "period,count\n" + minutes)
    assert read_recording(path) == Recording((30, 31, 32, 32, 32, 35, 36), 60, filled=2)


def test_one_integer_a_line_is_binned_again(tmp_path: Path) -> None:
    path = written(tmp_path, "a.txt.gz", "1\n0\n2\n0\n0\n5\n9\n")
    assert read_recording(path) == Recording((1, 0, 2, 0, 0, 5, 9), 1)
    assert read_recording(path).rebin(3) == Recording((3, 5), 3)


def test_single_requests_are_counted(tmp_path: Path) -> None:
    stamps = ("46.6805900", "46.9951690", "47.2224670", "50.6805900", "50.69")
    rows = "".join(f"2023-11-16 18:15:{s},374,44\n" for s in stamps)
    path = written(tmp_path, "a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    assert read_recording(path) == Recording((3, 0, 0, 0, 2), 1)
    assert read_recording(path, interval_s=5) == Recording((5,), 5)


def test_requests_out_of_order_are_counted_where_they_belong(tmp_path: Path) -> None:
    rows = "t,n\n2023-01-01 00:00:03,1\n2023-01-01 00:00:00,1\n2023-01-01 00:00:01.5,1\n"
    path = written(tmp_path, "a.csv", rows)
    assert read_recording(path, form="arrivals") == Recording((1, 1, 0, 1), 1)


def test_a_column_is_chosen_by_name(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "cpu,mem\n0.4,0.3\n0.5,0.2\n")
    assert read_recording(path, interval_s=300).values == (0.4, 0.5)
    assert read_recording(path, column="mem", interval_s=300) == Recording((0.3, 0.2), 300)
    with pytest.raises(CurveError, match="no column 'disk'; columns: cpu, mem"):
        read_recording(path, column="disk")


def test_a_part_is_cut_out() -> None:
    whole = Recording((1, 2, 3, 4, 5), 60)
    assert whole.cut(60, 120) == Recording((2, 3), 60)
    assert whole.cut(240) == Recording((5,), 60)
    with pytest.raises(CurveError, match="begin_s from 0 to 300"):
        whole.cut(300)


def test_bins_must_fit() -> None:
    whole = Recording((1, 2, 3), 60)
    with pytest.raises(CurveError, match="multiple of 60 s, got 90"):
        whole.rebin(90)
    with pytest.raises(CurveError, match="shorter than one bin"):
        whole.rebin(240)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "", "holds no recorded values"),
        ("a.csv", "timestamp,value\n", "holds no recorded values"),
        (
            "a.csv",
            "t,v\n2015-01-01 00:00:00,1\n2015-01-01 00:05,x\n",
            "a.csv:3: expected a number",
        ),
        ("a.csv", "t,v\n2015-01-01 00:00:00,1\nsoon,2\n", "a.csv:3: expected a time stamp"),
        ("a.csv", "t,v\n2015-01-01 00:00:00,-4\n", "a.csv:2: expected a number of 0 or more"),
        ("a.csv", "t,v\n2015-01-01 00:00:00\n", "a.csv:2: expected a number"),
        ("a.txt", "1\n2\nnan\n", "a.txt:3: expected a number"),
        ("a.txt", "1\n2\nthree\n", "a.txt:3: expected a number"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    with pytest.raises(CurveError) as caught:
        read_recording(written(tmp_path, name, text))
    assert says in str(caught.value)


def test_a_broken_gzip_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"1\n" * 1000)[:-20])
    with pytest.raises(CurveError, match="not a whole gzip file"):
        read_recording(path)
    path.write_bytes(b"1\n2\n")
    with pytest.raises(CurveError, match="not a whole gzip file"):
        read_recording(path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CurveError, match="not a text file"):
        read_recording(path)


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no recorded loads at {SHARED}")
@pytest.mark.parametrize(
    ("name", "bins", "interval_s", "filled", "peak", "total"),
    [
        ("nab_tweets_AAPL_5min.csv.gz", 15902, 300, 0, 13479, 1360453),
        ("nyc_taxi_30min.csv.gz", 10320, 1800, 0, 39197, 156219716),
        ("aws_elb_requests_5min.csv.gz", 4040, 300, 8, 656, None),
        ("worldcup98_0430_0614_per_minute.csv.gz", 64950, 60, 10, 128565, None),
        ("azure_llm_conv_requests.csv.gz", 3502, 1, 0, 16, 19366),
        ("nasa_http_jul95_per_second.txt.gz", 2381543, 1, 0, 20, 1891713),
    ],
)
def test_the_recorded_loads_are_read_whole(
    name: str, bins: int, interval_s: float, filled: int, peak: float, total: float | None
) -> None:
    recording = read_recording(SHARED / name)
    assert (len(recording.values), recording.interval_s) == (bins, interval_s)
    assert (recording.filled, max(recording.values)) == (filled, peak)
    if total is not None:
        assert sum(recording.values) == total


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"no recorded loads at {SHARED}")
def test_a_recorded_load_becomes_a_curve() -> None:
    recording = read_recording(SHARED / "nasa_http_jul95_per_second.txt.gz").rebin(60)
    assert max(recording.values) == 409
    day = recording.cut(length_s=86400)
    curve = Trace(day.values, day.interval_s, compress=1440, then="end")
    assert curve.length_s == 60
    assert curve.due(60.0) == pytest.approx(sum(day.values))
