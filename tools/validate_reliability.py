#!/usr/bin/env python3
"""Holds `moraine plan reliability` against a real run that is killed every few seconds.

Usage: tools/validate_reliability.py --program build/release/moraine --config configs/demo.toml [--set key=value ...]
           [--mtbf 6] [--steps 600] [--seed 1] [--ranks 1]

A quiet run gives the hash. Then the run is killed at exponential times and started again at once until it is done; its own records give the
time of a step and of a restart, for machines are not equally fast from minute to minute. Prints what the formula expects from these
times, what was measured, their ratio, and whether the hash is the quiet run's. Needs Python 3 only.

With --ranks 2 or more the run is supervised: at exponential times one of its ranks is killed, and replaced beside the others. Expected and
measured share are then those of the supervisor's own page (docs/supervisor.md).
"""
import argparse, json, os, random, re, shutil, statistics, subprocess, tempfile, time


def command(a, out, steps):
    sets = [x for s in a.set for x in ('--set', s)]
    return [a.program, 'train', '--config', a.config, '--out', out, '--set', f'train.steps={steps}',
            '--set', 'train.tokens=0', '--set', f'checkpoint.every_steps={a.every_steps}'] + sets


def lines_of(out):
    try:
        with open(os.path.join(out, 'metrics.jsonl')) as f:
            return f.read().count('\n')
    except FileNotFoundError:
        return 0


def start(a, out):
    return subprocess.Popen(command(a, out, a.steps), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def step_seconds(out):
    """From the records of the file: the mean of what the steps took that count, saves included."""
    with open(os.path.join(out, 'metrics.jsonl')) as f:
        rows = [json.loads(line) for line in f]
    times = [r['step_seconds'] for r in rows if 'step_seconds' in r]
    return statistics.mean(times[2:])


def ranks_of(out):
    """Process ids of the ranks that train into `out`."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/cmdline') as f:
                words = f.read().split('\0')
        except OSError:
            continue
        if 'train' in words and out in words and '--rank' in words:
            found.append(int(pid))
    return found


def supervised(a, out, want):
    sets = [x for s in a.set for x in ('--set', s)]
    child = subprocess.Popen(
        [a.program, 'supervise', '--config', a.config, '--out', out, '--ranks', str(a.ranks), '--set', f'train.steps={a.steps}',
         '--set', 'train.tokens=0', '--set', 'supervise.restarts=100000', '--set', 'supervise.backoff_seconds=0'] + sets,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    random.seed(a.seed)
    kills, due = 0, None
    while child.poll() is None:
        time.sleep(0.005)
        if due is None and lines_of(out) > 2:
            due = time.time() + random.expovariate(1 / a.mtbf)
        if due is not None and time.time() >= due:
            ranks = ranks_of(out)
            if ranks:
                os.kill(random.choice(ranks), 9)
                kills += 1
            due = time.time() + random.expovariate(1 / a.mtbf)
    hash_ = re.search(r'hash=(\w+)', child.stdout.read()).group(1)
    with open(os.path.join(out, 'supervise', 'incidents.html')) as f:
        page = f.read()
    seen = re.search(r'<b>([\d.]+) %</b> of (\S+) s went into steps that count \((\S+) s each', page)
    model = re.search(r'<b>([\d.]+) %</b> was to be expected of (\d+) interruptions.*?computed\s+again (\S+) s later', page, re.S)
    measured, expected = float(seen.group(1)), float(model.group(1))
    print(f'{a.ranks} ranks, supervised: step {seen.group(3)} s, computing again after {model.group(3)} s, {kills} kills, '
          f'{model.group(2)} interruptions in {seen.group(2)} s')
    print(f'useful: expected {expected:.1f} %, measured {measured:.1f} %, ratio {measured / expected:.3f}; '
          f'hash {"equal" if hash_ == want else "DIFFERENT"}')


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--program', required=True)
    p.add_argument('--config', required=True)
    p.add_argument('--set', action='append', default=[])
    p.add_argument('--mtbf', type=float, default=6.0)
    p.add_argument('--steps', type=int, default=600)
    p.add_argument('--every-steps', type=int, default=10)
    p.add_argument('--write-seconds', type=float, default=0.05, help='from a snapshot to a whole checkpoint')
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--ranks', type=int, default=1)
    a = p.parse_args()
    folder = tempfile.mkdtemp()
    quiet = os.path.join(folder, 'quiet')
    print('quiet run', flush=True)
    done = subprocess.run(command(a, quiet, a.steps), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    want = re.search(r'hash=(\w+)', done.stdout).group(1)
    print(f'step {step_seconds(quiet) * 1e3:.1f} ms', flush=True)

    faulty = os.path.join(folder, 'faulty')
    if a.ranks > 1:
        supervised(a, faulty, want)
        shutil.rmtree(folder)
        return
    random.seed(a.seed)
    begin = time.time()
    kills, restarts, deadline = 0, [], None
    while True:
        before, started = lines_of(faulty), time.time()
        child = start(a, faulty)
        life, is_first = random.expovariate(1 / a.mtbf), True
        while child.poll() is None and time.time() < started + life:
            time.sleep(0.005)
            if is_first and lines_of(faulty) > before:
                is_first = False
                restarts.append(time.time() - started)
        if child.poll() is not None:
            break
        child.kill()
        child.wait()
        kills += 1
        if kills % 10 == 0:
            print(f'{kills} kills, {lines_of(faulty)} of {a.steps} steps recorded, {time.time() - begin:.0f} s', flush=True)
    step = step_seconds(faulty)
    restarts = [seconds - step for seconds in restarts]
    wall = time.time() - begin - restarts[0]
    hash_ = re.search(r'hash=(\w+)', child.stdout.read()).group(1)
    restart = statistics.mean(restarts)
    useful = a.steps * step / wall
    expected = json.loads(subprocess.run(
        [a.program, 'plan', 'reliability', '--json', '--ranks', '1', '--ranks-per-host', '1',
         '--rank-mtbf-hours', str(a.mtbf / 3600), '--host-mtbf-hours', '1e9', '--detect-seconds', '0',
         '--restart-seconds', str(restart), '--save-seconds', '0', '--write-seconds', str(a.write_seconds),
         '--every-seconds', str(a.every_steps * step)], capture_output=True, text=True, check=True).stdout)
    print(f'step {step * 1e3:.1f} ms, restart {restart:.2f} s, {kills} kills in {wall:.0f} s (one in {wall / max(kills, 1):.1f} s)')
    print(f'useful: expected {100 * expected["useful"]:.1f} %, measured {100 * useful:.1f} %, '
          f'ratio {useful / expected["useful"]:.3f}; hash {"equal" if hash_ == want else "DIFFERENT"}')
    shutil.rmtree(folder)


main()
