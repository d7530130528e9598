"""What looks like a secret is removed, in many shapes, and ordinary text stays."""

from __future__ import annotations

import base64
import random
import string

import pytest

from aiperf.host.secret_shapes import SECRET, without_secrets, words_without_secrets
from tests.tables import ComesTo

# Assembled, so that no scanner of repositories takes them for real ones.
_LETTERS = "q7Rk2Zx9Lm4Vt8Wp3Hs6Yd1Nf5Bg0Jc"
_HEX = "9f86d081884c7d659a2feaa0c55ad015"
_PEM = "-----BEGIN {0}PRIVATE KEY-----\nMIIEow\n-----END {0}PRIVATE KEY-----"

WHOLE = [
    *(f"AK{'IA'}IOSFODNN7EXAMPLE", f"AS{'IA'}IOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    *(f"gh{kind}_{_LETTERS}" for kind in "pousr"),
    *(f"github_pat_11ABCDEFG0{_LETTERS}", f"glpat-{_LETTERS[:20]}", f"gldt-{_LETTERS[:20]}"),
    *(f"hf_{_LETTERS}", f"api_org_{_LETTERS}", f"npm_{_LETTERS}", f"pypi-AgEIcHlwaS5vcmc{_LETTERS}"),
    *(f"sk-{_LETTERS}", f"sk-ant-api03-{_LETTERS}", f"sk-proj-{_LETTERS}", f"sk_live_{_LETTERS}"),
    *(f"xox{'b'}-1234567890-{_LETTERS}", f"xapp-1-{_LETTERS}", f"AI{'za'}Sy{_LETTERS}", f"ya29.{_LETTERS}"),
    *(
        f"nvapi-{_LETTERS}",
        f"hvs.{_LETTERS}",
        f"dop_v1_{_HEX}",
        f"SG.{_LETTERS}.{_LETTERS}",
        f"r8_{_LETTERS}",
    ),
    *(f"dckr_pat_{_LETTERS}", f"dapi{_HEX}", "AGE-SECRET-KEY-1QQQSZ9"),
    *("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0."),
    *(_PEM.format(kind) for kind in ("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")),
    "-----BEGIN PRIVATE KEY-----\nMIIEow cut off",
    *(_HEX, _HEX.upper(), _HEX * 2, _HEX[:20] + _HEX, "123e4567-e89b-12d3-a456-426614174000"),
    *(_LETTERS, base64.b64encode(_LETTERS.encode()).decode(), "q83vEjRWeJC83vEjRWeJCw=="),
    "4k2j8s9d7f6g5h4j3k2l1m9n8b7v6c5x",
]
ORDINARY = [
    *("1.43 times as fast as eager on the seed", "--set data.tokens=100", "--set training.epochs=[2,4]"),
    *("author: x", "key=1", "graph_key=c67412bb", "residual-4-8-16", "20261125-203032-digits"),
    "CUDA out of memory. Tried to allocate 2.00 GiB; torch.cuda.OutOfMemoryError",
    "cudnn_frontend error: CUDNN_STATUS_NOT_SUPPORTED in cudnn8_conv2d_bias_act_fp16_nhwc_v2_kernel",
    "libtorch_cuda_linalg.so: undefined symbol: _ZN5torch8autograd6EngineC2Ev",
    "sm_90a_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_kernel__5x_cublas",
    "DistributedDataParallelCommHookType ResNet50ForImageClassification2",
    *("imagenet1k/train2017val2017/224px", "projects/p465000123/imagenet2012/resized224x224"),
    *(f"/nix/store/{_HEX}-python3/lib", f"in '/home/a/{_HEX}/x'", f"data.path=/scratch/{_LETTERS}"),
    *(
        "GPU-123e4567-e89b-12d3-a456-426614174000",
        "{0,1,2,3},{4,5,6,7}",
        "mlx5_0:1,mlx5_1:1",
        "12345678901234567890",
    ),
]


def test_a_secret_is_removed_alone_and_in_a_sentence() -> None:
    assert {text: without_secrets(text) for text in WHOLE} == dict.fromkeys(WHOLE, SECRET)
    told = {text: without_secrets(f"it failed: '{text}' is wrong") for text in WHOLE if "cut off" not in text}
    assert told == dict.fromkeys(told, f"it failed: '{SECRET}' is wrong")


def test_a_secret_that_is_a_part_is_removed_and_a_value_whose_option_says_what_it_is(
    comes_to_what_was_read: ComesTo,
) -> None:
    names = {"without_secrets": without_secrets, "words_without_secrets": words_without_secrets}
    comes_to_what_was_read("secrets.txt", {**globals(), **names})


def test_ordinary_text_stays() -> None:
    assert [without_secrets(text) for text in ORDINARY] == ORDINARY


@pytest.mark.parametrize(
    ("characters", "length"),
    [
        (string.ascii_letters + string.digits, 22),
        (string.ascii_letters + string.digits + "+/", 43),
        (string.ascii_letters + string.digits + "-_", 43),
        (string.ascii_lowercase + string.digits, 40),
        ("0123456789abcdef", 40),
    ],
)
def test_random_words_are_found_whatever_they_are(characters: str, length: int) -> None:
    """At least 19 of 20: a word that happens to look like a name may pass."""
    draw = random.Random(1)
    words = ["".join(draw.choices(characters, k=length)) for _ in range(500)]
    assert sum(SECRET in without_secrets(word) for word in words) >= 475
