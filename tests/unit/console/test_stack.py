"""The processes of a stack and their command lines."""

import pathlib

from bitts_console import stack, state, supervisor

FOLDERS = state.Folders(pathlib.Path("/s"), pathlib.Path("/r"))


def spec(name: str, options: stack.Options | None = None) -> stack.Spec:
    found = stack.specs(options or stack.Options(), FOLDERS)
    return next(one for one in found if one.name == name)


def test_each_part_is_a_process_of_its_own() -> None:
    names = [one.name for one in stack.specs(stack.Options(nodes=2), FOLDERS)]
    assert names == ["devcluster", "local-driver", "node-1", "node-2", "csi-provisioner"]


def test_every_process_carries_the_mark_by_which_it_is_found() -> None:
    for one in stack.specs(stack.Options(), FOLDERS):
        assert one.environ[state.MARK] == "/s", one.name


def test_the_driver_stands_where_the_kubelet_looks_and_the_provisioner_calls_it() -> None:
    socket = "/r/node-1/plugins/local.csi.bitts.dev/csi.sock"
    driver, provisioner = spec("local-driver").arguments, spec("csi-provisioner").arguments
    assert f"--endpoint=unix://{socket}" in driver
    assert f"--kubelet-registration-path={socket}" in driver
    assert "--registration-dir=/r/node-1/plugins_registry" in driver
    assert f"--csi-address={socket}" in provisioner


def test_the_chosen_backend_is_the_default_among_those_offered() -> None:
    arguments = spec("local-driver", stack.Options(backends=("image", "directory"))).arguments
    assert {"--backends=image,directory", "--default-backend=image"} <= set(arguments)


def test_the_kind_and_the_store_reach_the_cluster() -> None:
    arguments = spec("devcluster", stack.Options(kind="kubernetes", store="sqlite")).arguments
    assert {"--kind=kubernetes", "--store=sqlite", "--dir=/s/cluster"} <= set(arguments)


def test_only_a_cluster_in_memory_is_lost_with_its_process() -> None:
    assert "--store sqlite outlives" in spec("devcluster").loss
    assert spec("devcluster", stack.Options(store="sqlite")).loss == ""
    assert not any(one.loss for one in stack.specs(stack.Options(), FOLDERS)[1:])


def test_a_full_kubernetes_has_nodes_of_its_own_and_the_driver_runs_in_the_first() -> None:
    options = stack.Options(nodes=2, kind="kubernetes")
    every = {one.name: one for one in stack.specs(options, FOLDERS)}
    assert list(every) == ["devcluster", "local-driver", "csi-provisioner"]
    assert {"--nodes=2", "--nodes-dir=/r"} <= set(every["devcluster"].arguments)
    driver = every["local-driver"]
    assert driver.program == "devcluster-enter"
    assert driver.arguments[:3] == ("--dir=/s/cluster", "--node=node-1", "--")
    assert driver.arguments[3].endswith("/local-driver")
    assert driver.after == ("devcluster",)


def test_without_nodes_the_driver_runs_where_everything_does() -> None:
    options = stack.Options(nodes=0, kind="kubernetes")
    assert spec("local-driver", options).program == "local-driver"


def test_what_a_killed_kubernetes_left_is_removed_by_its_own_program() -> None:
    program, *arguments = stack.clear_cluster(FOLDERS)
    assert program.endswith("/devcluster")
    assert {"--clear", "--dir=/s/cluster", "--nodes-dir=/r"} <= set(arguments)


def test_clients_start_after_what_they_talk_to_and_stop_before_it() -> None:
    waves = supervisor.stopping_order(stack.specs(stack.Options(), FOLDERS))
    assert waves == [["node-1", "csi-provisioner"], ["devcluster", "local-driver"]]


def test_folders_that_hold_sockets_are_made_before_anything_starts() -> None:
    assert pathlib.Path("/r/node-1/plugins/local.csi.bitts.dev") in stack.runtime_folders(
        stack.Options(), FOLDERS
    )


def test_volumes_of_a_node_need_no_attaching() -> None:
    assert stack.csi_driver()["spec"]["attachRequired"] is False


def test_pods_are_not_placed_where_the_driver_is_not() -> None:
    assert stack.csi_driver()["spec"]["preventPodSchedulingIfMissing"] is True
