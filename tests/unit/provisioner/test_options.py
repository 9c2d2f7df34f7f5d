from collections.abc import Mapping

import pytest
from bitts.core.flags import FlagError
from bitts.core.sidecarflags import PacingOptions
from csi_provisioner import options
from csi_provisioner.options import Options


def parse(*words: str, environment: Mapping[str, str] | None = None) -> Options:
    flags = options.Flags("1.2.3")
    return flags.options(flags.set.parse(words), environment or {})


def test_the_defaults_are_upstream_s() -> None:
    found = parse()
    assert (found.name_prefix, found.name_length) == ("pvc", -1)
    assert (found.placing.strict, found.placing.immediate) == (False, True)
    assert found.sidecar.timeout == 10.0
    assert found.sidecar.worker_threads == 100
    assert (found.sidecar.retry_start, found.sidecar.retry_max) == (1.0, 300.0)
    assert found.capacity is None
    assert found.gates == {"Topology", "VolumeAttributesClass"}
    assert found.warnings == ()


EVERY_FLAG = [
    "--master=https://api",
    "--volume-name-prefix=vol",
    "--volume-name-uuid-length=8",
    "--retry-interval-start=2s",
    "--retry-interval-max=1m",
    "--worker-threads=7",
    "--cloning-protection-threads=2",
    "--snapshot-orphan-sweep-interval=0",
    "--capacity-threads=3",
    "--timeout=20s",
    "--strict-topology",
    "--immediate-topology=false",
    "--extra-create-metadata",
    "--enable-pprof",
    "--default-fstype=xfs",
    "--kube-api-capacity-qps=2",
    "--kube-api-capacity-burst=4",
    "--enable-capacity",
    "--capacity-for-immediate-binding",
    "--capacity-poll-interval=30s",
    "--capacity-ownerref-level=2",
    "--node-deployment=false",
    "--node-deployment-immediate-binding=false",
    "--node-deployment-base-delay=1s",
    "--node-deployment-max-delay=2s",
    "--controller-publish-readonly",
    "--prevent-volume-mode-conversion=false",
    "--feature-gates=Topology=false",
    "--kubeconfig=/k",
    "--csi-address=/csi/csi.sock",
    "--leader-election",
    "--leader-election-namespace=ns",
    "--kube-api-qps=50",
    "--kube-api-burst=100",
    "--http-endpoint=:8080",
    "--metrics-path=/m",
    "--automaxprocs",
    "-v=4",
    "--logging-format=json",
    "stray",
]


def test_every_flag_of_upstream_is_known() -> None:
    found = parse(*EVERY_FLAG, environment={"NAMESPACE": "kube-system", "POD_NAME": "pod"})
    assert (found.master, found.name_prefix, found.name_length) == ("https://api", "vol", 8)
    assert found.gates == {"VolumeAttributesClass"}
    assert found.capacity == options.CapacityOptions(
        immediate=True,
        poll_interval=30.0,
        owner_level=2,
        threads=3,
        pacing=PacingOptions(2.0, 4),
        namespace="kube-system",
        pod_name="pod",
    )
    assert found.intent_journal == "lease"
    assert found.publish_readonly
    assert found.extra_metadata
    assert found.default_fstype == "xfs"


@pytest.mark.parametrize(
    "word",
    [
        "--provisioner=x",
        "--connection-timeout=10s",
        "--enable-leader-election",
        "--leader-election-type=leases",
        "--logtostderr",
        "--stderrthreshold=INFO",
    ],
)
def test_removed_flags_are_ignored_with_a_warning(word: str) -> None:
    [warning] = parse(word).warnings
    assert "no longer exists and is ignored" in warning


@pytest.mark.parametrize(
    ("words", "environment", "text", "code"),
    [
        (["--node-deployment"], {}, "--node-deployment is not supported", 255),
        (["--enable-capacity"], {}, "environment variable NAMESPACE", 255),
        (["--enable-capacity"], {"NAMESPACE": "n"}, "environment variable POD_NAME", 255),
        (
            ["--enable-capacity", "--capacity-poll-interval=0"],
            {"NAMESPACE": "n", "POD_NAME": "p"},
            "--capacity-poll-interval",
            2,
        ),
        (
            ["--enable-capacity", "--kube-api-capacity-burst=-1"],
            {"NAMESPACE": "n", "POD_NAME": "p"},
            "--kube-api-capacity-burst must not be negative",
            2,
        ),
        (["--volume-name-uuid-length=0"], {}, "--volume-name-uuid-length", 2),
        (["--intent-journal=lease"], {}, "--intent-journal=lease needs --leader-election", 2),
        (["--csi-address=tcp://1.2.3.4:5"], {}, "--csi-address", 1),
    ],
)
def test_wrong_options_are_named_with_what_to_do(
    words: list[str], environment: Mapping[str, str], text: str, code: int
) -> None:
    with pytest.raises(FlagError) as caught:
        parse(*words, environment=environment)
    assert text in str(caught.value)
    assert caught.value.code == code


@pytest.mark.parametrize("word", ["--intent-journal=paper", "--no-such-flag", "--timeout=15"])
def test_wrong_words_are_refused(word: str) -> None:
    with pytest.raises(FlagError):
        parse(word)


def test_without_an_owner_no_pod_is_needed() -> None:
    words = ["--enable-capacity", "--capacity-ownerref-level=-1"]
    found = parse(*words, environment={"NAMESPACE": "n"})
    assert found.capacity is not None
    assert found.capacity.pacing == PacingOptions()


@pytest.mark.parametrize(
    ("words", "journal"),
    [
        ([], "file"),
        (["--leader-election"], "lease"),
        (["--leader-election", "--intent-journal=file"], "file"),
        (["--intent-journal=off"], "off"),
    ],
)
def test_where_intents_are_kept(words: list[str], journal: str) -> None:
    assert parse(*words).intent_journal == journal


def test_gates_without_effect_and_unknown_ones_warn() -> None:
    found = parse("--feature-gates=CrossNamespaceVolumeDataSource=true,HonorPVReclaimPolicy=true")
    assert any("CrossNamespaceVolumeDataSource has no effect" in text for text in found.warnings)
    assert any("HonorPVReclaimPolicy" in text for text in found.warnings)
