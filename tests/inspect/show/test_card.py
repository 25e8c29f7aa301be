"""The card of a command: what it says, and that it fits a screen of 24 lines and 80 columns."""

from datetime import UTC, datetime

from vmsonar_inspect.facts.quantities import Energy
from vmsonar_inspect.facts.runs import ProgramShare, RunUse
from vmsonar_inspect.show.card import card_lines, card_markdown

FULL = RunUse(
    command="make " + "-j8 " * 40,
    archive="/home/anna/.local/state/vmsonar-runs/20261118T083025.104233-7409-make-with-a-long-name-here",
    started=datetime(2026, 11, 18, 8, 0, tzinfo=UTC),
    ended=datetime(2026, 11, 18, 8, 31, 7, tzinfo=UTC),
    elapsed_seconds=1867.2,
    exit_signal=9,
    ended_by="SIGKILL, by the kernel: the control group of the job was out of memory at 1.0 GiB, which it had for 4 s",
    cpu_seconds=3600.0,
    cpu_source="cgroup",
    recorded_cpu_seconds=3000.0,
    recorded_cpu_seconds_low=2990.0,
    recorded_cpu_seconds_high=3010.0,
    cores=1.93,
    cores_available=2.0,
    memory_peak_bytes=2.0**30,
    memory_peak_low_bytes=2.0**30,
    memory_peak_high_bytes=2.0**31,
    memory_charged_peak_bytes=3 * 2.0**30,
    memory_total_bytes=8 * 2.0**30,
    memory_limit_bytes=4 * 2.0**30,
    read_bytes=2.0**20,
    write_bytes=2.0**30,
    io_is_lower_bound=True,
    received_bytes=1000,
    sent_bytes=2000,
    waited_cpu=0.31,
    waited_memory=0.0,
    waited_io=0.004,
    waited_source="cgroup",
    gpu_util=12.0,
    energy=Energy(joules=450.0, kwh=0.000125, source="estimate", grams_co2e=0.091),
    programs=[
        ProgramShare(program=name, processes=214, cpu_seconds=1000) for name in ("cc1", "as", "ld", "sh")
    ],
    unnamed_processes=3,
    left_behind=2,
    samples=1800,
    trouble="3 samples could not be written: is the disk full?",
    verdicts=["starved of CPU by others: " + "it was ready to run and waited, " * 8 + "(low confidence)"] * 3,
    size="at least 2 cores, 4 GiB",
)


def test_everything_that_can_be_said_fits_a_screen():
    lines = card_lines(FULL, 80)
    rows = sum(-(-len(line) // 80) for line in lines)
    assert rows <= 23  # an empty line before it
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[-1].endswith(FULL.archive)  # whole, to be copied
    text = "\n".join(lines)
    assert text.count("\nverdict ") == 2
    assert text.count("…") == 3  # the command, and the verdicts after two lines each
    assert "had for 4 s at 2026-11-18 08:31:07 UTC" in " ".join(text.split())


def test_its_figures_have_their_marks():
    text = "\n".join(card_lines(FULL, 200))
    for words in (
        "CPU         1.0 h, 1.9 cores of 2 (96 %), control group",
        "            the record has 50 min",
        "memory      peak ≥1.0 GiB of 8.0 GiB, limit 4.0 GiB, charged 3.0 GiB with cache",
        "disk        read ≥1.0 MiB, written ≥1.0 GiB",
        "waited for  CPU 31 %, memory 0 %, disk <1 % of the time (of its own)",
        "inside      cc1 \u00d7 ≥214, ≥28 % of the CPU",
        "energy      ~0.1 Wh, 91 mg CO2e",
        "left        2 processes ran on after its end",
        "enough      at least 2 cores, 4 GiB",
    ):
        assert words in text


def test_what_is_not_known_is_not_said():
    lines = card_lines(RunUse(command="true", ended_by="exit 0", trouble="/root: Read-only file system"))
    assert lines == [
        "command     true",
        "ended       exit 0",
        "record      none: /root: Read-only file system",
        "elapsed     \u2013",
        "CPU         \u2013, \u2013 cores, not known",
        "memory      \u2013",
    ]  # fmt: skip


def test_markdown_is_a_table_that_no_command_can_break():
    text = card_markdown(RunUse(command="echo `id` | tee\x1b[31m", ended_by="exit 0"))
    assert text.startswith("### `echo 'id' \\| tee")
    assert "\x1b" not in text
    assert "| ended | exit 0 |" in text.splitlines()
