"""Damaged input for everything that event2vec reads: `make fuzz`, or `python -m fuzz --help`.

Input N of a target is made from (seed, target, N) alone: `python -m fuzz --target npz --only N` makes it again.

    seeds.py       small valid files of every kind
    damage.py      changes to bytes, text and trees
    containers.py  the same inside zip, npy, mat, AEDAT4 and safetensors, packed again so that checksums and lengths fit
    targets.py     what is read, and what must hold of it afterwards
    child.py       makes and reads one input after the other in a process with limits
    watch.py       starts these processes, ends those that hang, and keeps what escaped
"""
