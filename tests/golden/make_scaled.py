#!/usr/bin/env python3
"""Makes native-fp8, legacy-fp8 and native-mxfp4: experts packed by compressed-tensors, and what its own unpacking and
Hugging Face transformers make of them.

  make_scaled.py OUT

README.md names the versions and explains the keys.
"""

import copy
import json
import pathlib
import sys

import make_golden as golden
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams

SPEC = dict(
    seed=100, batch=1, length=16,
    config=dict(vocab_size=64, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                head_dim=16, num_experts=2, moe_intermediate_size=32, router_hidden_size=16,
                layer_types=["hybrid"] * 2, rope_parameters=golden.rope(hybrid=10000), **golden.PLAIN))

FORMATS = {
    "fp8": ("float-quantized", dict(num_bits=8, type="float", symmetric=True, strategy="channel", dynamic=False)),
    "mxfp4": ("mxfp4-pack-quantized", dict(num_bits=4, type="float", symmetric=True, strategy="group", group_size=32,
                                           dynamic=False, scale_dtype="torch.uint8")),
}


def pack(matrix, form, scheme):
    """One matrix: its tensors as they are stored, and the matrix that the library unpacks from them."""
    groups = matrix.reshape(matrix.shape[0], -1, scheme.weights.group_size or matrix.shape[1])
    low, high = groups.amin(-1), groups.amax(-1)
    scale, _ = calculate_qparams(low, high, scheme.weights)
    if form == "mxfp4-pack-quantized":  # a power of two, as it is stored: values are rounded by that one
        scale = 2.0 ** torch.floor(torch.log2(scale.float()))
    compressor = BaseCompressor.get_value_from_registry(form)
    stored = compressor.compress({"weight": matrix, "weight_scale": scale}, scheme)
    back = compressor.decompress({k: v.clone() for k, v in stored.items()}, scheme)["weight"].float()
    return stored, back


def pack_experts(state, form, scheme):
    """Stacked experts, as the published files have them: NAME or NAME.weight_packed, and NAME.weight_scale."""
    packed, plain = {}, dict(state)
    for name, stack in state.items():
        if ".mlp.experts." not in name:
            packed[name] = stack
            continue
        parts = [pack(matrix, form, scheme) for matrix in stack]
        for leaf in parts[0][0]:
            packed[name if leaf == "weight" else f"{name}.{leaf}"] = torch.stack([p[0][leaf] for p in parts])
        plain[name] = torch.stack([p[1] for p in parts])
    return packed, plain


def legacy_packed(packed, plain, layers):
    """The same in the older layout: one matrix per expert, NAME.weight and NAME.weight_scale."""
    out = golden.legacy_state(plain, layers)
    for name, stack in packed.items():
        if ".mlp.experts." not in name:
            continue
        layer, fc = int(name.split(".")[2]), "linear_fc1" if "gate_up_proj" in name else "linear_fc2"
        leaf = "weight_scale" if name.endswith("weight_scale") else "weight"
        for e, matrix in enumerate(stack):
            out[f"model.layers.{2 * layer + 1}.zaya_block.experts.local_experts.{e}.{fc}.{leaf}"] = matrix.clone()
    return out


def make(out, tag):
    form, weights = FORMATS[tag]
    scheme = QuantizationScheme(targets=["re:.*experts.*"], weights=QuantizationArgs(**weights))
    model, ids = golden.build(SPEC), golden.tokens_of(SPEC)
    packed, plain = pack_experts({k: v.clone() for k, v in model.state_dict().items() if k != "lm_head.weight"}, form, scheme)
    model.load_state_dict(plain, strict=False)
    got, _ = golden.measure(model, ids, grads=False)
    expected = dict(input_ids=ids, logits=got["logits"])
    expected.update((f"weight/{k}", v) for k, v in plain.items() if ".mlp.experts." in k)

    config = QuantizationConfig(config_groups={"group_0": scheme}, format=form, ignore=["re:^(?!.*experts).*$"],
                                quantization_status="compressed").model_dump(mode="json")
    config.setdefault("quant_method", "compressed-tensors")
    folder = out / f"native-{tag}"
    folder.mkdir(parents=True, exist_ok=True)
    native = dict(json.loads(model.config.to_json_string()), architectures=["ZayaForCausalLM"],
                  quantization_config=config)
    golden.write_json(folder / "config.json", native)
    golden.write_tensors(folder / "model.safetensors", packed)
    golden.write_tensors(folder / "expected.safetensors", expected)
    if tag == "fp8":
        layers = SPEC["config"]["num_hidden_layers"]
        folder = out / "legacy-fp8"
        folder.mkdir(parents=True, exist_ok=True)
        golden.write_json(folder / "config.json",
                          dict(golden.legacy_config(copy.deepcopy(SPEC["config"])), quantization_config=config))
        golden.write_tensors(folder / "model.safetensors", legacy_packed(packed, plain, layers))


def main():
    torch.set_num_threads(2)
    for tag in FORMATS:
        make(pathlib.Path(sys.argv[1]), tag)


if __name__ == "__main__":
    main()
