# ruff: noqa: E501 (one op, one entry)
"""Small ops, each of a kind that the compiler seed must rewrite."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SmallOp:
    """Parts of an op's source."""

    arguments: str
    """Parameters of forward."""
    forward: str
    inputs: str
    """Items of get_inputs()."""
    init: str = ""
    """Statements of __init__."""
    parameters: str = ""
    """Parameters of __init__."""
    init_inputs: str = "[]"

    @property
    def source(self) -> str:
        """The op's file."""
        lines = ["import torch", "import torch.nn as nn", "import torch.nn.functional as F", "", ""]
        lines.append("class Model(nn.Module):")
        if self.init:
            lines.append(f"    def __init__(self{', ' if self.parameters else ''}{self.parameters}):")
            lines += ["        super().__init__()", *(f"        {line}" for line in self.init.splitlines()), ""]
        lines += [
            f"    def forward(self, {self.arguments}):",
            *(f"        {line}" for line in self.forward.splitlines()),
        ]
        lines += ["", "", "def get_inputs():", f"    return [{self.inputs}]"]
        lines += ["", "", "def get_init_inputs():", f"    return {self.init_inputs}", ""]
        return "\n".join(lines)


OPS: dict[str, SmallOp] = {
    "amax_nan": SmallOp(
        "x",
        "return (x.amax(-1), x.amin(0))",
        "torch.where(torch.rand(64, 300) < 0.01, float('nan'), torch.randn(64, 300))",
    ),
    "argmax_long": SmallOp("x", "return (x.argmax(-1), x.max(-1)[0])", "torch.randn(8, 5000)"),
    "argmax_rows": SmallOp("x", "return x.argmax(-1)", "torch.randn(64, 300)"),
    "attention_math": SmallOp(
        "q, k, v, m",
        "s = q @ k.transpose(-1, -2) / 4\ns = s.masked_fill(~m, float('-inf'))\nreturn torch.softmax(s, -1) @ v",
        "torch.randn(2, 4, 16, 16), torch.randn(2, 4, 16, 16), torch.randn(2, 4, 16, 16), torch.ones(16, 16, dtype=torch.bool).tril()",
    ),
    "avg_pool": SmallOp("x", "return F.avg_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 1)", "torch.randn(2, 4, 16, 16)"),
    "batch_norm_eval": SmallOp(
        "x", "return torch.relu(self.n(x))", "torch.randn(4, 16, 15, 15)", init="self.n = nn.BatchNorm2d(16)"
    ),
    "bf16_gelu_bias": SmallOp(
        "x",
        "return F.gelu(x + self.b)",
        "torch.randn(64, 256, dtype=torch.bfloat16)",
        init="self.b = nn.Parameter(torch.randn(256, dtype=torch.bfloat16))",
    ),
    "bf16_layer_norm": SmallOp(
        "x",
        "return self.n(x)",
        "torch.randn(64, 256, dtype=torch.bfloat16)",
        init="self.n = nn.LayerNorm(256, dtype=torch.bfloat16)",
    ),
    "big_grid": SmallOp("x", "return x * 2 + 1", "torch.randn(1000, 1000)"),
    "bmm_scale": SmallOp(
        "x, y", "return torch.bmm(x, y.transpose(1, 2)) / 8 + 1", "torch.randn(4, 16, 32), torch.randn(4, 20, 32)"
    ),
    "broadcast_add": SmallOp(
        "x, y, z", "return x + y * z", "torch.randn(4, 1, 64), torch.randn(16, 64), torch.randn(4, 16, 1)"
    ),
    "cat_relu": SmallOp(
        "x, y", "return torch.cat([x, y * 2, torch.relu(x)], 1)", "torch.randn(8, 20), torch.randn(8, 5)"
    ),
    "ce_smooth": SmallOp(
        "x, y",
        "return F.cross_entropy(x, y, label_smoothing=0.1, ignore_index=3)",
        "torch.randn(64, 50), torch.randint(0, 50, (64,))",
    ),
    "channels_last": SmallOp(
        "x", "return torch.relu(x) * 2", "torch.randn(2, 8, 10, 10).to(memory_format=torch.channels_last)"
    ),
    "const_tensor": SmallOp(
        "x",
        "return x * torch.tensor([1.0, 2.0, 3.0]) + torch.arange(3) + self.k",
        "torch.randn(8, 3)",
        init="self.k = torch.tensor([4.0, 5.0, 6.0])",
    ),
    "conv3d_mish": SmallOp(
        "x", "return F.mish(self.c(x)) * 2", "torch.randn(2, 3, 6, 8, 8)", init="self.c = nn.Conv3d(3, 8, 3, padding=1)"
    ),
    "conv_grouped_1d": SmallOp(
        "x",
        "return F.leaky_relu(self.c(x), 0.1)",
        "torch.randn(2, 8, 50)",
        init="self.c = nn.Conv1d(8, 8, 5, groups=4, dilation=2, bias=False)",
    ),
    "conv_transpose_tanh": SmallOp(
        "x",
        "return torch.tanh(self.c(x) - self.b)",
        "torch.randn(2, 4, 9, 9)",
        init="self.c = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)\nself.b = nn.Parameter(torch.randn(6, 1, 1))",
    ),
    "cosine": SmallOp("x, y", "return F.cosine_similarity(x, y)", "torch.randn(64, 50), torch.randn(64, 50)"),
    "cumprod_long": SmallOp("x", "return (x * 0.01 + 1).cumprod(-1)", "torch.randn(4, 3000)"),
    "cumsum_rows": SmallOp("x", "return x.cumsum(-1)", "torch.randn(16, 300)"),
    "cumsum_columns": SmallOp("x", "return x.cumsum(0)", "torch.randn(256, 40)"),
    "dict_out": SmallOp("x", "return {'a': (x * 2, x.sum(-1)), 'b': [x.exp()], 'n': 3}", "torch.randn(8, 20)"),
    "embedding_pos": SmallOp(
        "i",
        "return self.e(i) * 2 + self.p[:i.shape[1]]",
        "torch.randint(0, 100, (4, 12))",
        init="self.e = nn.Embedding(100, 32)\nself.p = nn.Parameter(torch.randn(16, 32))",
    ),
    "expanded": SmallOp("x, b", "return torch.relu(x + b)", "torch.randn(64, 1).expand(64, 128), torch.randn(128)"),
    "float_pow_mod": SmallOp(
        "x",
        "return (x.abs().pow(1.7), torch.remainder(x, 0.3), torch.floor(x), torch.fmod(x, 0.4))",
        "torch.randn(500)",
    ),
    "fp16_softmax": SmallOp("x", "return torch.softmax(x, -1)", "torch.randn(64, 256, dtype=torch.float16)"),
    "fp64_gelu": SmallOp(
        "x", "return F.gelu(x) + x.sum(-1, keepdim=True)", "torch.randn(16, 100, dtype=torch.float64)"
    ),
    "gather_mul": SmallOp(
        "x, i", "return torch.gather(x, 1, i) * 2", "torch.randn(8, 100), torch.randint(0, 100, (8, 20))"
    ),
    "glu_chain": SmallOp(
        "x",
        "a, b = x.chunk(2, -1)\nh = a * torch.sigmoid(b)\nh = h / (h.norm(dim=-1, keepdim=True) + 1e-06)\nreturn h.square().sum(-1)",
        "torch.randn(32, 128)",
    ),
    "group_norm_odd": SmallOp("x", "return self.n(x)", "torch.randn(3, 12, 7, 9)", init="self.n = nn.GroupNorm(3, 12)"),
    "hardswish_chain": SmallOp(
        "x",
        "return F.hardswish(x) + F.softplus(x) + F.elu(x) + F.selu(x) + F.relu6(x) + F.hardtanh(x)",
        "torch.randn(1000)",
    ),
    "index_select_add": SmallOp(
        "x, i", "return x.index_select(0, i) + 1", "torch.randn(50, 32), torch.randint(0, 50, (17,))"
    ),
    "inplace_mid": SmallOp("x", "y = x * 2\ny.add_(1)\ny[:, 0] = 0\nreturn y.relu_()", "torch.randn(8, 20)"),
    "instance_norm": SmallOp(
        "x", "return self.n(x)", "torch.randn(2, 8, 20, 20)", init="self.n = nn.InstanceNorm2d(8, affine=True)"
    ),
    "int_div_mod": SmallOp("x", "return (x // 7, x % 5, -x // 3)", "torch.randint(-1000, 1000, (500,))"),
    "int_mask": SmallOp(
        "x, m",
        "return (torch.where(m & (x > 0), x, -x), m.sum(-1))",
        "torch.randint(-50, 50, (16, 100)), torch.rand(16, 100) > 0.5",
    ),
    "kl_div": SmallOp(
        "x, y",
        "return F.kl_div(F.log_softmax(x, -1), torch.softmax(y, -1), reduction='batchmean')",
        "torch.randn(64, 50), torch.randn(64, 50)",
    ),
    "layer_norm_2d": SmallOp("x", "return self.n(x)", "torch.randn(8, 16, 32)", init="self.n = nn.LayerNorm((16, 32))"),
    "layer_norm_long": SmallOp("x", "return self.n(x)", "torch.randn(8, 9000)", init="self.n = nn.LayerNorm(9000)"),
    "linear_relu": SmallOp(
        "x",
        "return torch.relu(self.l(x))",
        "torch.randn(33, 64)",
        init="self.l = nn.Linear(i, o)",
        parameters="i, o",
        init_inputs="[64, 48]",
    ),
    "log_softmax": SmallOp("x", "return F.log_softmax(x, -1)", "torch.randn(32, 777)"),
    "logsumexp": SmallOp("x", "return torch.logsumexp(x, 1)", "torch.randn(32, 300)"),
    "lstm_cell": SmallOp(
        "x", "h, c = self.c(x)\nreturn (h, c)", "torch.randn(4, 8)", init="self.c = nn.LSTMCell(8, 16)"
    ),
    "max_dim": SmallOp("x", "v, i = x.max(dim=1)\nreturn (v, i)", "torch.randn(16, 33, 20)"),
    "max_pool": SmallOp("x", "return F.max_pool2d(x, 3, 2, 1) * 2", "torch.randn(2, 4, 17, 17)"),
    "mean_all": SmallOp("x", "return x.mean()", "torch.randn(64, 3000)"),
    "mha": SmallOp(
        "x",
        "return torch.relu(self.a(x, x, x, need_weights=False)[0])",
        "torch.randn(2, 10, 32)",
        init="self.a = nn.MultiheadAttention(32, 4, batch_first=True)",
    ),
    "min_nan": SmallOp(
        "x", "return x.min(dim=1)[0]", "torch.where(torch.rand(64, 300) < 0.01, float('nan'), torch.randn(64, 300))"
    ),
    "mlp": SmallOp(
        "x",
        "return self.net(x)",
        "torch.randn(16, 32)",
        init="self.net = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8), nn.Sigmoid())",
    ),
    "mse_loss": SmallOp("x, y", "return F.mse_loss(x, y)", "torch.randn(128, 300), torch.randn(128, 300)"),
    "nested_in": SmallOp(
        "x, d", "return d['a'][0] * d['a'][1] + x", "torch.randn(8, 16), {'a': [torch.randn(8, 16), torch.randn(16)]}"
    ),
    "permute_out": SmallOp("x", "return x.permute(2, 0, 1) * 3", "torch.randn(4, 50, 70)"),
    "prod_any_all": SmallOp("x", "return (x.prod(-1), (x > 2).any(-1), (x > -3).all(0))", "torch.randn(16, 30)"),
    "rope_interleaved": SmallOp(
        "x, f",
        "a, b = x[..., 0::2], x[..., 1::2]\nc, s = f.cos(), f.sin()\nreturn torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)",
        "torch.randn(2, 4, 32, 16), torch.randn(32, 8)",
    ),
    "rms_norm_mod": SmallOp("x", "return self.n(x)", "torch.randn(64, 512)", init="self.n = nn.RMSNorm(512)"),
    "scalar_args": SmallOp(
        "x, scale, causal, shift",
        "y = x * scale\nif causal:\n    y = torch.tril(y)\nreturn torch.roll(y, shift, dims=-1)",
        "torch.randn(8, 16, 16), 0.125, True, 3",
    ),
    "scatter_add": SmallOp(
        "x, i",
        "return torch.zeros(8, 50).scatter_add(1, i, x) + 1",
        "torch.randn(8, 20), torch.randint(0, 50, (8, 20))",
    ),
    "sdpa_gelu": SmallOp(
        "q, k, v",
        "return F.gelu(F.scaled_dot_product_attention(q, k, v, is_causal=True))",
        "torch.randn(2, 4, 16, 16), torch.randn(2, 4, 16, 16), torch.randn(2, 4, 16, 16)",
    ),
    "softmax_dim1": SmallOp("x", "return torch.softmax(x, 1)", "torch.randn(8, 40, 64)"),
    "softmax_long": SmallOp("x", "return torch.softmax(x, -1)", "torch.randn(8, 20000)"),
    "stack_pad": SmallOp(
        "x, y", "return F.pad(torch.stack([x, y], 1), (1, 2))", "torch.randn(8, 20), torch.randn(8, 20)"
    ),
    "sum_cols": SmallOp("x", "return x.sum(0)", "torch.randn(300, 100)"),
    "sum_long_rows": SmallOp("x", "return x.sum(-1)", "torch.randn(4, 300000)"),
    "sum_long_split": SmallOp("x", "return x.sum()", "torch.randn(1000003)"),
    "sum_rows": SmallOp("x", "return x.sum(-1)", "torch.randn(100, 1000)"),
    "tied": SmallOp(
        "i",
        "return self.h(torch.relu(self.e(i)))",
        "torch.randint(0, 100, (6,))",
        init="self.e = nn.Embedding(100, 16)\nself.h = nn.Linear(16, 100, bias=False)\nself.h.weight = self.e.weight",
    ),
    "topk_dict": SmallOp("x", "v, i = torch.topk(x, 8, dim=-1)\nreturn {'v': v * 2, 'i': i}", "torch.randn(16, 100)"),
    "transpose_copy": SmallOp("x", "return x.transpose(1, 2).contiguous() + 1", "torch.randn(4, 50, 70)"),
    "transposed_in": SmallOp("x, y", "return x + y", "torch.randn(50, 70).t(), torch.randn(70, 50)"),
    "trig": SmallOp(
        "x",
        "return torch.sin(x) + torch.cos(x) * torch.tanh(x) + torch.atan2(x, x + 3) + torch.erf(x) + torch.log1p(x.abs()) + torch.expm1(x)",
        "torch.randn(500)",
    ),
    "uint8_img": SmallOp(
        "x",
        "return x.float() / 255 - self.m",
        "torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)",
        init="self.register_buffer('m', torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1))",
    ),
    "upsample": SmallOp(
        "x", "return F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=False)", "torch.randn(1, 3, 8, 8)"
    ),
    "var_std": SmallOp("x", "return (x.var(-1), x.std(0), x.norm(dim=1))", "torch.randn(50, 70)"),
    "view_out": SmallOp("x", "return (x.view(-1), (x * 2)[1:3], x.t())", "torch.randn(8, 20)"),
    "where_inf": SmallOp(
        "x",
        "return (torch.where(x > 0, x, float('-inf')), torch.clamp(x, -1, 1), torch.isnan(x / x))",
        "torch.randn(100)",
    ),
    "zero_dim": SmallOp("x, s", "return x * 2 + s", "torch.randn(10), torch.randn(())"),
}

LIBRARY_ONLY = SmallOp("x, y", "return x @ y", "torch.randn(16, 32), torch.randn(32, 16)")
SORTING = SmallOp("x", "return torch.sort(x * 2, -1)[0]", "torch.randn(16, 100)")
POLAR = SmallOp("x", "return torch.view_as_real(torch.polar(torch.ones_like(x), x)) * 2", "torch.randn(16, 32)")
