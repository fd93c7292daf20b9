package group

import (
	"encoding/binary"
	"hash"
	"hash/fnv"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/election/office"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

// listDigest returns a digest by which members detect different lists of the same
// version. It includes the previous list, whose majority matters as well, except in
// mode Available, which has no grants. Addresses are not included.
func listDigest(list control.List, mode office.Mode) uint64 {
	h := fnv.New64a()
	hashList(h, list.Version, list.Members)
	if list.Previous != nil && mode != office.Available {
		hashList(h, list.Previous.Version, list.Previous.Members)
	}
	return h.Sum64()
}

func hashList(h hash.Hash, version uint32, members []control.Member) {
	b := binary.LittleEndian.AppendUint32(nil, version)
	for _, m := range members {
		b = append(b, m.Name...)
		b = binary.LittleEndian.AppendUint32(b, m.Priority)
	}
	_, _ = h.Write(b) // A hash never returns an error.
}

// configDigest returns a digest of the settings that all members must share,
// independently of their lists: the safety mode and the UID of the group. The operator
// may change a group from Majority to Strict while it runs. In the meantime, members in
// both modes accept each other, and the group has the guarantees of Majority.
func configDigest(group config.Group) uint64 {
	mode := group.Safety.Mode
	if group.UID != "" && mode == office.Strict {
		mode = office.Majority
	}
	h := fnv.New64a()
	_, _ = h.Write(append([]byte{byte(mode)}, group.UID...))
	return h.Sum64()
}
