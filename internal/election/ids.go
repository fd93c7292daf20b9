package election

import (
	"encoding/binary"
	"slices"
)

// IDs is a small set of processes, in ascending order.
type IDs []ID

// Has reports whether id is in the set.
func (s IDs) Has(id ID) bool {
	_, found := slices.BinarySearch(s, id)
	return found
}

// Add adds id to the set, and reports whether it wasn't in the set before.
func (s *IDs) Add(id ID) bool {
	i, found := slices.BinarySearch(*s, id)
	if !found {
		*s = slices.Insert(*s, i, id)
	}
	return !found
}

// Remove removes id from the set, and reports whether it was in the set.
func (s *IDs) Remove(id ID) bool {
	i, found := slices.BinarySearch(*s, id)
	if found {
		*s = slices.Delete(*s, i, i+1)
	}
	return found
}

// Clone returns an independent copy.
func (s IDs) Clone() IDs { return slices.Clone(s) }

// Encode appends the set to b.
func (s IDs) Encode(b []byte) []byte {
	b = AppendNumber(b, uint64(len(s)))
	for _, id := range s {
		b = AppendNumber(b, uint64(id))
	}
	return b
}

// AppendNumber appends n to an encoded state.
func AppendNumber(b []byte, n uint64) []byte { return binary.AppendUvarint(b, n) }

// AppendFlag appends a boolean to an encoded state.
func AppendFlag(b []byte, on bool) []byte {
	if on {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendMoment appends a deadline to an encoded state, relative to now. All past moments have the same encoding.
func AppendMoment(b []byte, at, now Tick) []byte {
	switch {
	case at == Never:
		return append(b, 0)
	case at <= now:
		return append(b, 1)
	}
	return AppendNumber(append(b, 2), uint64(at-now))
}
