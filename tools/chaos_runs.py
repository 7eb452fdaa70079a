#!/usr/bin/env python3
"""Many short storms of `moraine chaos`, a seed each, until enough faults were done; adds up their tables.

    tools/chaos_runs.py --faults 1000 [--ranks 2] [--out runs/chaos] -- --config run.toml [--set ...] [--every-seconds ...]

What stands behind -- goes to `moraine chaos`. Ends with 1 if any storm ended badly or in another hash; its folder stays.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="runs/chaos")
    parser.add_argument("--program", default="build/release/moraine")
    parser.add_argument("chaos", nargs="+", help="arguments of moraine chaos")
    options = parser.parse_args()

    out = pathlib.Path(options.out)
    rows, bad, quiet, storms, idle, seconds, lost = {}, [], "", 0, 0, 0.0, 0.0
    begin = time.time()
    while sum(row["done"] for row in rows.values()) < options.faults:
        seed = options.seed + storms
        folder = out / f"seed-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        command = [options.program, "chaos", "--ranks", str(options.ranks), "--seed", str(seed), "--out", str(folder), "--json"]
        if quiet:
            command += ["--quiet-hash", quiet]
        ended = subprocess.run(command + options.chaos, capture_output=True, text=True)
        storms += 1
        if not ended.stdout.startswith("{"):
            print(f"seed {seed}: exit {ended.returncode}: {ended.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            bad.append(seed)
            if len(bad) > 10:
                break
            continue
        result = json.loads(ended.stdout)
        quiet = result["quiet_hash"]
        seconds += result["storm_seconds"]
        lost += result["seconds_lost"]
        if result["equal"]:
            shutil.rmtree(folder)
        else:
            print(f"seed {seed}: another hash; {folder} stays", file=sys.stderr)
            bad.append(seed)
        for row in result["faults"]:
            into = rows.setdefault(row["fault"], {"done": 0, "lost": 0.0, "most": 0.0, "levels": {}})
            into["done"] += row["done"]
            into["lost"] += row["seconds_lost"]
            into["most"] = max(into["most"], row["seconds_most"])
            for level, count in row["absorbed_at"].items():
                into["levels"][level] = into["levels"].get(level, 0) + count
        idle = 0 if result["tested"] else idle + 1
        if idle > 10:
            print(f"{idle} storms in a row in which no fault could be done: the run is too short", file=sys.stderr)
            bad.append(seed)
            break
        done = sum(row["done"] for row in rows.values())
        left = (time.time() - begin) / max(done, 1) * max(0, options.faults - done)
        print(f"{storms} storms, {done} faults, {len(bad)} bad, {left:.0f} s left", file=sys.stderr)

    print(f"{'fault':<16} {'done':>6} {'lost s':>9} {'most s':>8}  absorbed at")
    for name, row in sorted(rows.items()):
        levels = ", ".join(f"{level} {count}" for level, count in sorted(row["levels"].items()))
        print(f"{name:<16} {row['done']:>6} {row['lost']:>9.1f} {row['most']:>8.1f}  {levels}")
    done = sum(row["done"] for row in rows.values())
    print(f"{done} faults in {storms} storms of {options.ranks} ranks, {seconds:.0f} s, of which {lost:.0f} s were lost; "
          f"{'every hash equal to' if not bad else f'NOT ALL WELL (seeds {bad}):'} {quiet}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
