#!/bin/sh
# Compares `insitu order` with the model's dump on random geometries: order_vs_model.sh MODEL N [INSITU [SEED]]
exec python3 - "$@" <<'END'
import importlib.util, random, subprocess, sys

model, n = sys.argv[1], int(sys.argv[2])
program = sys.argv[3] if len(sys.argv) > 3 else "build/linked/insitu"
R = random.Random(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
spec = importlib.util.spec_from_file_location("order", model)
order = importlib.util.module_from_spec(spec)
spec.loader.exec_module(order)

empty = rows = 0
for i in range(n):
    M, U = R.choice([R.randint(1, 70), R.randint(1, 400), R.randint(1, 3000)]), R.choice([1, 1, 2, 3, 8, 30, 200])
    M = max(1, min(M, 6000 // U))
    share = R.choice([0, 0, .02, .5, 1])
    irr = {u: R.choice([0, U, R.randint(0, U)]) for u in range(M) if R.random() < share}
    L = R.choice([1, 1, 2, 3, 4, 6, 8, 64])
    G, W = L * R.randint(1, 9), R.choice([1, R.randint(1, 9), R.randint(1, 100), R.randint(1, 10000)])
    seed, epoch = R.choice([R.randint(0, 9), R.getrandbits(64)]), R.choice([R.randint(0, 9), R.getrandbits(64)])
    o = order.Order(M, U, irr, seed, epoch, G, L, W)
    want = "".join("%d %d %d %d %d\n" % (p, *o.at(p)) for p in range(o.batches * G))
    args = [str(x) for x in (M, U, seed, epoch, G, L, W)] + ["%d:%d" % x for x in irr.items()]
    got = subprocess.run([program, "order"] + args, capture_output=True, text=True)
    if got.returncode or got.stdout != want:
        sys.exit("differs from the model: insitu order " + " ".join(args) + "\n" + got.stderr)
    empty += not o.batches
    rows += o.batches * G
print(n, "geometries agree:", rows, "positions;", empty, "geometries without a batch")
END
