"""As whom containers run: by the option, by the tool, and by whether it runs rootless."""

from pathlib import Path

import pytest

from agent.container_user import Standing, read_user, standing
from agent.containers import run_invocation
from agent.launch import Invocation
from llmgw.ids import DeviceId, NodeId
from llmgw.wire import ContainerSpec, Device
from tests.agent.test_containers import record

OWN = (1000, 1001)


@pytest.mark.parametrize(
    ("tool", "wanted", "rootless", "user", "handles"),
    [
        ("docker", "image", False, "", 20_000),
        ("docker", "agent", False, "1000:1001", 20_000),
        ("docker", "agent", True, "0:0", None),
        ("docker", "7:8", True, "7:8", None),
        ("podman", "image", True, "", None),
        ("podman", "agent", True, "0:0", None),
        ("podman", "agent", False, "1000:1001", None),
    ],
)
def test_root_within_a_rootless_container_is_the_agent_without(
    tmp_path: Path, tool: str, wanted: str, rootless: bool, user: str, handles: int | None
) -> None:
    who = standing(tool, wanted, OWN, 20_000, rootless=rootless, dev=tmp_path)
    assert (who.user, who.handles) == (user, handles)
    assert who.groups == (("keep-groups",) if rootless and tool == "podman" else ("video",))


def test_the_groups_of_device_files_are_given_in_numbers(tmp_path: Path) -> None:
    (tmp_path / "kfd").touch()
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri" / "renderD128").touch()
    own = str((tmp_path / "kfd").stat().st_gid)
    who = standing("docker", "image", OWN, 2**20, rootless=False, dev=tmp_path)
    assert who.groups == ((own,) if own != "0" else ("video",)), "root's own group needs no adding"
    assert who.handles == 65_536


def test_the_client_is_told_user_groups_and_handles() -> None:
    amd = Device(id=DeviceId("GPU-a"), index=0, kind="MI300X", vendor="amd")
    inside = Invocation(argv=("serve",), env={})
    who = Standing("1000:1001", ("44", "993"), 65_536)
    made = run_invocation(
        "/bin/docker", inside, ContainerSpec(image="i:1"), record(), NodeId("n1"), ((amd, 0),), (), {}, who
    )
    told = " ".join(made.argv)
    assert "--device /dev/kfd --device /dev/dri --group-add 44 --group-add 993 --user 1000:1001" in told
    assert "--ulimit nofile=65536:65536" in told
    assert told.index("--user") < told.index("i:1"), "what follows the image is the engine's"


@pytest.mark.parametrize("text", ["image", "agent", "0", "1000", "1000:1000"])
def test_users_are_read(text: str) -> None:
    assert read_user(text) == text


@pytest.mark.parametrize("text", ["", "root", "1000:", ":5", "-1", "1 --privileged", "99999999999"])
def test_a_name_is_refused_since_images_do_not_agree_on_it(text: str) -> None:
    with pytest.raises(ValueError, match="UID"):
        read_user(text)
