"""What machines ship is filed once, whatever the order, the overlaps and the repeats; nothing else is."""

import hashlib
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from vmsonar_archive.bundle.redact import parse_kinds
from vmsonar_archive.format import journal
from vmsonar_archive.format.bag import BundledFile
from vmsonar_archive.format.journal import Ledger
from vmsonar_archive.format.layout import JOURNAL_FILE
from vmsonar_archive.read.reader import open_archive
from vmsonar_archive.system.errors import UsageError
from vmsonar_archive.verify.path import verify_path
from vmsonar_archive.verify.signature import read_trust

from tests.archive.bundle.hostile import CASES, IDENTITY, SEGMENT, canonical, frames, line
from tests.fleet.place import Machines, Vm, assert_same, sums
from tests.parts import requires
from vmsonar.config.quantities import ByteSize
from vmsonar.config.shipping import FleetSection, Kept, Retention
from vmsonar.fleet.holdings import read_holding
from vmsonar.fleet.intake import Intake, Receipt, Refused, intake_by
from vmsonar.fleet.refusals import Refusal
from vmsonar.fleet.store import Fleet

AT = datetime.fromisoformat("2026-11-16T14:00:00Z")
#: Those that take seconds to make or to read; that verification bears them is tested with the bundles.
HEAVY = {
    "million", "gaps_bomb", "reasons_bomb", "bad_records_bomb", "repeats_bomb", "missing_bomb", "zstd_bomb",
    "dropped_bomb", "records_bomb", "merges_bomb",
}  # fmt: skip


def take(intake: Intake, path: Path) -> Receipt:
    receipt = intake.take(path, "test", keep=True)
    assert receipt.accepted, receipt
    return receipt


def shipped(vm: Vm, increments: int = 4) -> list[Path]:
    made = []
    for _ in range(increments):
        vm.record(50)
        made.append(vm.increment())
    return made


def test_increments_become_the_archive(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    receipts = [take(intake, path) for path in shipped(vm)]
    assert [receipt.records for receipt in receipts] == [51] * 4
    assert [receipt.archive for receipt in receipts] == [vm.archive] * 4
    assert_same(fleet, [vm])
    holding = read_holding(fleet, vm.archive)
    assert holding is not None
    assert (holding.records, holding.bundles, holding.host) == (204, 4, "vm0")


def test_whole_bundles_that_grow_count_each_record_once(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    for number in range(4):
        vm.record(200)
        if number == 2:
            vm.restart()
            vm.tidy()
        take(intake, vm.bundle(f"{number}.tar"))
    assert_same(fleet, [vm])


def test_the_same_bundle_twice_changes_nothing(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    (path,) = shipped(vm, 1)
    assert take(intake, path).records == 51
    before = {one: one.read_bytes() for one in fleet.archive(vm.archive).rglob("*.*")}
    again = take(intake, path)
    assert (again.records, again.repeats) == (0, 51)
    assert before == {one: one.read_bytes() for one in fleet.archive(vm.archive).rglob("*.*")}
    holding = read_holding(fleet, vm.archive)
    assert holding is not None
    assert holding.bundles == 1


def test_any_order_and_overlap(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    first, second, third = shipped(vm, 3)
    whole = vm.bundle("whole.tar")
    vm.record(30)
    late = vm.bundle("late.tar")
    for path in (third, first, whole, second, late, first):
        take(intake, path)
    assert_same(fleet, [vm])


def test_records_that_are_cut_keep_their_info_rows(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    vm.record(20)
    take(intake, vm.bundle("a.tar"))
    vm.record(20)
    take(intake, vm.bundle("b.tar"))
    with open_archive(fleet.archive(vm.archive)) as archive:
        for segment in archive.segments("sample"):
            first = next(iter(archive.lines(segment)))
            assert msgspec.json.decode(first)["process_info"], segment


def test_two_runs_that_gave_the_same_numbers(tmp_path: Path, vm: Vm, fleet: Fleet, intake: Intake) -> None:
    """A power cut undid what one bundle had taken: another run gives the numbers again."""
    # Within the hour: what was sealed cannot be undone.
    vm.record(6)
    copy = tmp_path / "copy"
    shutil.copytree(vm.root, copy)
    vm.record(4)
    take(intake, vm.bundle("before.tar"))
    vm.come_back_as(copy)
    vm.record(15)
    take(intake, vm.bundle("after.tar"))
    assert sums(fleet.origins())[vm.archive]["samples"] == 6 + 4 + 15


@pytest.mark.parametrize("name", [name for name in CASES if name not in HEAVY])
def test_nothing_hostile_is_filed(name: str, tmp_path: Path, vm: Vm, fleet: Fleet, intake: Intake) -> None:
    vm.record(20)
    good = vm.bundle("good.tar")
    content = CASES[name](good)
    bad = tmp_path / "bad.tar"
    with bad.open("wb") as file:
        for chunk in [content] if isinstance(content, bytes) else content:
            file.write(chunk)
    receipt = intake.take(bad, "test")
    assert not receipt.accepted, receipt
    assert receipt.reason
    assert receipt.detail
    assert str(tmp_path) not in receipt.detail, "the sender learns nothing of our folders"
    assert not bad.exists()
    (reason,) = fleet.refused.glob("*.json")
    assert receipt.set_aside == str(reason)
    assert all(verify_path(root).ok for root in fleet.origins())


@pytest.mark.chaos
@pytest.mark.parametrize("name", sorted(HEAVY))
def test_nothing_heavy_is_filed(name: str, tmp_path: Path, vm: Vm, fleet: Fleet, intake: Intake) -> None:
    test_nothing_hostile_is_filed(name, tmp_path, vm, fleet, intake)


def test_another_history_is_refused(tmp_path: Path, vm: Vm, fleet: Fleet, intake: Intake) -> None:
    """Whoever rewrites the machine's journal, and hashes it anew, is told from it by what was published before."""
    vm.record(400)
    copy = tmp_path / "copy"
    shutil.copytree(vm.root, copy)
    vm.record(400)
    vm.stop()
    take(intake, vm.bundle("before.tar"))
    vm.come_back_as(copy)
    vm.record(1200)
    receipt = intake.take(vm.bundle("after.tar"), "test")
    assert receipt.reason == "other_history"
    assert sums(fleet.origins())[vm.archive]["samples"] == 800


def test_another_machine_cannot_take_an_archives_id(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    vm.record(20)
    take(intake, vm.bundle("mine.tar"))
    identity = vm.root / "archive.json"
    identity.write_bytes(identity.read_bytes().replace(b"vm0", b"vm1"))
    (vm.root / "journal.jsonl").unlink()
    receipt = intake.take(vm.bundle("theirs.tar"), "test")
    assert receipt.reason == "other_machine"
    assert intake.take(vm.bundle("again.tar"), "test", machine="f" * 32).reason == "other_machine"


def test_bundles_of_some_kinds_are_not_filed(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    vm.record(20)
    assert intake.take(vm.bundle("some.tar", only=("node",)), "test").reason == "only_some_kinds"
    assert fleet.ids() == []


def test_what_the_machine_had_lost_is_said_and_the_rest_is_filed(
    vm: Vm, fleet: Fleet, intake: Intake
) -> None:
    vm.record(1000)
    vm.stop()
    first, second, third = sorted(vm.root.rglob("sample-*"))[:3]
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 1
    first.write_bytes(content)
    second.unlink()
    receipt = intake.take(vm.bundle("a.tar"), "test")
    assert receipt.accepted
    assert {Path(finding.path).name for finding in receipt.findings} == {first.name, second.name}
    assert receipt.set_aside is not None
    filed = {path.name for path in fleet.archive(vm.archive).rglob("sample-*")}
    assert third.name in filed
    assert filed.isdisjoint({first.name, second.name})


def test_a_note_that_was_lost_is_made_again(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    first, second = shipped(vm, 2)
    take(intake, first)
    for note in fleet.state.glob("*.json"):
        note.unlink()
    assert take(intake, first).repeats == 51
    take(intake, second)
    assert_same(fleet, [vm])


def test_bundles_with_hidden_names_are_an_archive_of_their_own(vm: Vm, fleet: Fleet, intake: Intake) -> None:
    redact = frozenset(parse_kinds("all"))
    for _ in range(2):
        vm.record(300)
        take(intake, vm.bundle("hidden.tar", redact=redact))
        (vm.outbox / "hidden.tar").unlink()
    (hidden,) = fleet.ids()
    assert hidden != vm.archive
    assert sums(fleet.origins())[hidden]["samples"] == 600
    take(intake, vm.bundle("plain.tar"))
    assert sorted(fleet.ids()) == sorted([hidden, vm.archive])


def test_the_age_of_an_archive_costs_an_intake_nothing(
    vm: Vm, fleet: Fleet, intake: Intake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(12):
        vm.record(5)
        vm.restart()
        take(intake, vm.increment())
    collected = fleet.archive(vm.archive) / JOURNAL_FILE
    vm.record(5)
    vm.stop()
    last = vm.increment()
    parsed, calls = journal._parsed, []

    def counted(line: bytes) -> object:
        calls.append(line)
        return parsed(line)

    monkeypatch.setattr(journal, "_parsed", counted)
    for made, limit in ((last, 12), (last, 8)):
        calls.clear()
        take(intake, made)
        assert len(calls) <= limit < collected.read_bytes().count(b"\n")
    # One that somebody else wrote to is read whole again.
    collected.write_bytes(collected.read_bytes() + b"{}\n")
    calls.clear()
    assert intake.take(last, "test", keep=True).accepted
    assert len(calls) > 24


def test_a_chain_that_goes_on_from_a_checked_beginning_is_still_checked(vm: Vm) -> None:
    for _ in range(3):
        vm.record(5)
        vm.restart()
    lines = (vm.root / JOURNAL_FILE).read_bytes().splitlines(keepends=True)
    whole = Ledger.of(one[:-1] for one in lines)
    checked = b"".join(lines[:2])
    for rest, broken in ((lines[2:], None), (lines[3:], 3)):
        ledger = Ledger.after(checked, whole.current)
        for one in rest:
            ledger.add(one[:-1])
        assert ledger.broken_at == broken
        if broken is None:
            assert (ledger.head, ledger.lines, ledger.current) == (whole.head, whole.lines, whole.current)


def test_the_evidence_of_a_day_is_one_file_that_tar_reads(vm: Vm, fleet: Fleet) -> None:
    time = [AT]
    intake = Intake(fleet, now=lambda: time[0])

    def names(path: Path) -> list[str]:
        command = ["tar", "--zstd", "-tf", str(path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    shipped = []
    for number in range(5):
        if number == 4:
            time[0] += timedelta(days=1)
        vm.record(20)
        shipped.append(vm.increment())
        take(intake, shipped[-1])
        if number == 2:
            # A crash left a part of what it was adding.
            (path,) = fleet.evidence.glob("*/*.tar.zst")
            content = path.read_bytes()
            path.write_bytes(content + content[: len(content) // 5])
    for path in shipped:
        assert take(intake, path).records == 0
    first, second = sorted(fleet.evidence.glob("*/*.tar.zst"))
    assert [path.name for path in (first, second)] == [f"{day:%F}.bag.tar.zst" for day in (AT, time[0])]
    assert sum(name.endswith("/tagmanifest-sha256.txt") for name in names(first)) == 4
    assert len({name.partition("/")[0] for name in names(first)}) == 4
    assert sum(name.endswith("/tagmanifest-sha256.txt") for name in names(second)) == 1


@requires("ssh_keygen")
def test_only_what_somebody_trusted_signed(tmp_path: Path, vm: Vm, fleet: Fleet) -> None:
    for name in ("ours", "theirs"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(tmp_path / name)]
        subprocess.run(command, check=True)
    signers = tmp_path / "signers"
    signers.write_text(f"vm0 {(tmp_path / 'ours.pub').read_text()}")
    intake = Intake(fleet, trust=read_trust(signers, "vm0"))
    vm.record(20)
    assert intake.take(vm.bundle("unsigned.tar"), "test").reason == "untrusted"
    assert intake.take(vm.bundle("theirs.tar", sign=tmp_path / "theirs"), "test").reason == "untrusted"
    assert fleet.ids() == []
    take(intake, vm.bundle("ours.tar", sign=tmp_path / "ours"))
    (evidence,) = fleet.evidence.glob("*/*.tar.zst")
    names = subprocess.run(
        ["tar", "--zstd", "-tf", evidence], check=True, capture_output=True, text=True
    ).stdout
    assert "tagmanifest-sha256.txt.sig" in names


@pytest.mark.parametrize(
    ("lie", "accepted"),
    [
        ({}, True),
        ({"first_seq": 1, "last_seq": 1, "first": AT, "last": AT}, True),
        ({"first_seq": 2, "last_seq": 2}, False),
        ({"first_seq": 1, "last_seq": 9}, False),
        ({"first": AT + timedelta(hours=1), "last": AT + timedelta(hours=2)}, False),
        ({"first": AT - timedelta(hours=2), "last": AT - timedelta(hours=1)}, False),
    ],
)
def test_a_journal_tells_the_truth_of_its_segments(
    lie: dict[str, object], accepted: bool, tmp_path: Path, intake: Intake
) -> None:
    """Readers pass over a segment by what its line says of times and numbers."""
    content = frames(line(b""))
    digest = hashlib.sha256(content).hexdigest()
    described = BundledFile(SEGMENT, ["live"], bytes=len(content), sha256=digest, records=1, **lie)  # type: ignore[arg-type]
    bundle = tmp_path / "lies.tar"
    payload = {"archive.json": IDENTITY, "journal.jsonl": b"", SEGMENT: content}
    bundle.write_bytes(canonical(payload, [described]))
    assert intake.take(bundle, "test").accepted is accepted


def test_what_is_configured_holds_for_every_way_in(vm: Vm, fleet: Fleet, tmp_path: Path) -> None:
    signers = tmp_path / "signers"
    signers.write_text("")
    with pytest.raises(UsageError, match="signer is not set"):
        intake_by(fleet, FleetSection(allowed_signers_file=str(signers)))
    intake = intake_by(fleet, FleetSection(allowed_signers_file=str(signers), signer="vm0"))
    (path,) = shipped(vm, 1)
    receipt = intake.take(path, "test")
    assert (receipt.accepted, receipt.reason, receipt.stays) == (False, "untrusted", True)
    assert path.exists(), "it may be as good as our file of signers is bad"
    # Asked again and again, it is said once.
    intake.take(path, "test")
    (reason,) = fleet.refused.iterdir()
    assert msgspec.json.decode(reason.read_bytes(), type=Refusal).kept is False


def test_what_refused_has_no_room_for_stays_where_it_is(tmp_path: Path, vm: Vm, fleet: Fleet) -> None:
    kept = Retention(refused=Kept(max_bytes=ByteSize(6000), max_days=1))
    now = [AT]
    intake = Intake(fleet, refused=kept.refused, now=lambda: now[0])
    bad = [tmp_path / f"{number}.tar" for number in range(3)]
    for path in bad:
        path.write_bytes(b"x" * 2500)
    stays = [intake.take(path, "test").stays for path in bad]
    assert stays == [False, False, True]
    assert [path.exists() for path in bad] == stays
    assert len(list(fleet.refused.glob("*.tar"))) == 2
    for number in range(30):
        intake.refuse_content(b"x" * 3000, f"{number}", "test", Refused("bad_record", "is none"))
    assert sum(path.stat().st_size for path in fleet.refused.iterdir()) <= 6000
    assert len(list(fleet.refused.glob("*.tar"))) == 2
    # What the machine itself had lost is filed without it, and stays there too.
    vm.record(1000)
    vm.stop()
    min(vm.root.rglob("sample-*")).unlink()
    path = vm.bundle("a.tar")
    receipt = intake.take(path, "test")
    assert (receipt.accepted, receipt.stays, path.exists()) == (True, True, True)
    now[0] = datetime.now(UTC) + timedelta(days=2)
    assert intake.take(bad[2], "test").stays
    assert not intake.take(bad[2], "test").stays, "the old ones made room"


def test_records_of_an_archive_that_is_broken_here_are_kept_for_ever(fleet: Fleet, intake: Intake) -> None:
    intake.refuse_content(b"{}", "id.jsonl", "kafka", Refused("broken_archive", "cannot be filed"))
    intake.refuse_content(b"{}", "id.jsonl", "kafka", Refused("bad_record", "is none"))
    intake.refusals.prune(datetime.now(UTC) + timedelta(days=1000))
    assert [path.name.split("-")[2] for path in fleet.refused.iterdir()] == ["broken_archive"] * 2


def test_a_broken_archive_of_ours_is_not_said_to_be_another_machines(
    machines: Machines, fleet: Fleet, intake: Intake
) -> None:
    broken, whole = machines(), machines()
    for vm in (broken, whole):
        (path,) = shipped(vm, 1)
        take(intake, path)
    archive_json = fleet.archive(broken.archive) / "archive.json"
    known = archive_json.read_bytes()
    archive_json.write_bytes(b"{")
    (path,) = shipped(broken, 1)
    receipt = intake.take(path, "test")
    assert (receipt.accepted, receipt.reason, receipt.stays) == (False, "broken_archive", True)
    archive_json.write_bytes(known)
    take(intake, path)
    assert_same(fleet, [broken, whole])
