# INSITUBATCH_LIBRARY=./libinsitubatch.so julia examples/19_julia.jl
# Reads one epoch of the observed winds in Julia: mean and deviation, and how long a batch is. The configuration is JSON, and the
# arrays of a batch are Julia's, without a copy, with the axes reversed: (lon, lat, row).
# The shared library: make lib, or cc -shared -fPIC -O2 -D_GNU_SOURCE -DINSITU_IMPLEMENTATION -x c insitubatch.h
# -o libinsitubatch.so -luring -lcurl -llz4 -lzstd -lpthread. Run from the repository's root; an archive may be named as argument.
include("bindings/insitubatch.jl")
using .InsituBatch

function check(status, err)
    status in (InsituBatch.INSITU_OK, InsituBatch.INSITU_END) || error(InsituBatch.text(err[]))
    status
end

# An array of a batch, of floats in host memory; gone with the batch.
function floats(batch, name)
    p = InsituBatch.insitu_batch_find(batch, name)
    p == C_NULL && error("there is no array $name")
    a = unsafe_load(p)
    a.dtype == InsituBatch.INSITU_F32 || error("$name has other elements than floats")
    shape = unsafe_wrap(Array, a.shape, a.ndim)
    unsafe_wrap(Array, Ptr{Float32}(a.data), Tuple(Int.(reverse(shape))))
end

function main(archive)
    err = InsituBatch.zeroed(InsituBatch.insitu_error)
    loader, iter, batch = Ref(C_NULL), Ref(C_NULL), Ref(C_NULL)
    json = """{"url": "$archive", "batch_size": 16, "variables": [{"label": "u", "path": "uwnd"}]}"""
    check(InsituBatch.insitu_loader_open_json(json, C_NULL, loader, err), err)
    check(InsituBatch.insitu_iter_open_json(loader[], "{\"split\": \"train\"}", C_NULL, iter, err), err)
    n, total, squares = 0, 0.0, 0.0
    while check(InsituBatch.insitu_iter_next(iter[], InsituBatch.INSITU_FOREVER, batch, err), err) == InsituBatch.INSITU_OK
        u = floats(batch[], "u")
        n == 0 && println("a batch is $(size(u))")
        n += length(u)
        total += sum(Float64, u)
        squares += sum(x -> Float64(x)^2, u)
        InsituBatch.insitu_batch_release(batch)
    end
    mean = total / n
    println("$n winds: mean $(round(mean, digits=3)) m/s, deviation $(round(sqrt(squares / n - mean^2), digits=3))")
    InsituBatch.insitu_iter_close(iter)
    InsituBatch.insitu_loader_close(loader)
end

main(isempty(ARGS) ? "examples/data/winds.zarr" : ARGS[1])
