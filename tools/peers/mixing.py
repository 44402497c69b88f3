"""How well an epoch is mixed, from the numbers of the samples that were delivered: what
insitu_quality tells of ours."""


def ratio(anchors, batch, count):
    """B Var(batch mean of source rank) / sigma^2 * (n - 1)/(n - B), where n = count samples are
    numbered 0 to n - 1, and sigma^2 is their variance; 1 is an ideal shuffle. Only whole batches
    count."""
    middle, square, batches = (count - 1) / 2, 0.0, 0
    for at in range(0, len(anchors) - batch + 1, batch):
        mean = sum(anchors[at : at + batch]) / batch - middle
        square, batches = square + mean * mean, batches + 1
    return batch * square / batches / ((count * count - 1) / 12) * (count - 1) / (count - batch)


def epochs(anchors, batch, count, n):
    """The mean ratio of n epochs, one after the other in anchors."""
    each = len(anchors) // n
    return sum(ratio(anchors[i * each : (i + 1) * each], batch, count) for i in range(n)) / n
