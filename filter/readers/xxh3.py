"""XXH3-64 in Python, for machines without the package `xxhash`, which is a hundred times as fast."""

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
MASK = (1 << 64) - 1


def word(data, at, size=8):
    return int.from_bytes(data[at:at + size], "little")


def fold(a, b):
    return (a * b & MASK) ^ (a * b >> 64)


def finish(x, factor=0x165667919E3779F9, shift=32):
    x = (x ^ x >> 37) * factor & MASK
    return x ^ x >> shift


def finish_xxh64(x):
    x = (x ^ x >> 33) * P64[1] & MASK
    x = (x ^ x >> 29) * P64[2] & MASK
    return x ^ x >> 32


def mix(data, at, secret_at, seed):
    low, high = word(SECRET, secret_at) + seed & MASK, word(SECRET, secret_at + 8) - seed & MASK
    return fold(word(data, at) ^ low, word(data, at + 8) ^ high)


def up_to_16(data, seed):
    n = len(data)
    if n == 0:
        return finish_xxh64(seed ^ word(SECRET, 56) ^ word(SECRET, 64))
    if n < 4:
        combined = data[0] << 16 | data[n // 2] << 24 | data[-1] | n << 8
        return finish_xxh64(combined ^ (word(SECRET, 0, 4) ^ word(SECRET, 4, 4)) + seed & MASK)
    if n <= 8:
        seed ^= int.from_bytes((seed & 0xFFFFFFFF).to_bytes(4, "little"), "big") << 32
        flip = (word(SECRET, 8) ^ word(SECRET, 16)) - seed & MASK
        x = (word(data, n - 4, 4) + (word(data, 0, 4) << 32)) ^ flip
        x ^= (x << 49 | x >> 15) & MASK ^ (x << 24 | x >> 40) & MASK
        x = x * 0x9FB21C651E98DF25 & MASK
        x = (x ^ (x >> 35) + n) * 0x9FB21C651E98DF25 & MASK
        return x ^ x >> 28
    low = word(data, 0) ^ (word(SECRET, 24) ^ word(SECRET, 32)) + seed & MASK
    high = word(data, n - 8) ^ (word(SECRET, 40) ^ word(SECRET, 48)) - seed & MASK
    return finish(n + int.from_bytes(low.to_bytes(8, "little"), "big") + high + fold(low, high) & MASK)


def up_to_240(data, seed):
    n = len(data)
    x = n * P64[0]
    if n <= 128:
        for i in range((n - 1) // 32 + 1):
            x += mix(data, 16 * i, 32 * i, seed) + mix(data, n - 16 * (i + 1), 32 * i + 16, seed)
        return finish(x & MASK)
    x = finish((x + sum(mix(data, 16 * i, 16 * i, seed) for i in range(8))) & MASK)
    x += sum(mix(data, 16 * i, 16 * (i - 8) + 3, seed) for i in range(8, n // 16))
    return finish(x + mix(data, n - 16, 136 - 17, seed) & MASK)


def over_240(data, seed):
    parts = [word(SECRET, at) + (-seed if at % 16 else seed) & MASK for at in range(0, 192, 8)]
    secret = b"".join(part.to_bytes(8, "little") for part in parts)
    sums = [P32[2], *P64[:4], P32[1], P64[4], P32[0]]

    def add(at, secret_at):
        for i in range(8):
            value = word(data, at + 8 * i)
            key = value ^ word(secret, secret_at + 8 * i)
            sums[i ^ 1] += value
            sums[i] = sums[i] + (key & 0xFFFFFFFF) * (key >> 32) & MASK

    for stripe in range((len(data) - 1) // 64):
        add(64 * stripe, stripe % 16 * 8)
        if stripe % 16 == 15:
            for i in range(8):
                x = sums[i] & MASK
                sums[i] = (x ^ x >> 47 ^ word(secret, 128 + 8 * i)) * P32[0] & MASK
    add(len(data) - 64, 192 - 64 - 7)
    folded = (fold(sums[2 * i] & MASK ^ word(secret, 11 + 16 * i), sums[2 * i + 1] & MASK ^ word(secret, 19 + 16 * i))
              for i in range(4))
    return finish(len(data) * P64[0] + sum(folded) & MASK)


def xxh3_64_intdigest(data, seed=0):
    """The hash of these bytes, equal to the function of the package `xxhash`."""
    return (up_to_16 if len(data) <= 16 else up_to_240 if len(data) <= 240 else over_240)(data, seed)
