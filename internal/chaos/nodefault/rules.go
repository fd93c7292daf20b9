//go:build linux

package nodefault

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// A rule of nftables is a list of expressions, which are encoded as attributes. https://github.com/google/nftables has them too, but
// it can't add a table that the kernel removes when the process ends.
type rule [][]byte

// attribute encodes an attribute of netlink.
func attribute(kind uint16, values ...[]byte) []byte {
	value := bytes.Join(values, nil)
	b := binary.NativeEndian.AppendUint16(nil, uint16(unix.SizeofNlAttr+len(value))) //nolint:gosec // attributes are short
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&(unix.NLA_ALIGNTO-1))...)
}

func nested(kind uint16, values ...[]byte) []byte {
	return attribute(kind|unix.NLA_F_NESTED, values...)
}
func number(kind uint16, value uint32) []byte { return attribute(kind, bigEndian(value)) }
func text(kind uint16, value string) []byte   { return attribute(kind, []byte(value), []byte{0}) }
func short(kind, value uint16) []byte {
	return attribute(kind, binary.BigEndian.AppendUint16(nil, value))
}
func native(value uint16) []byte    { return binary.NativeEndian.AppendUint16(nil, value) }
func bigEndian(value uint32) []byte { return binary.BigEndian.AppendUint32(nil, value) }

func expression(name string, attributes ...[]byte) []byte {
	return nested(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nested(unix.NFTA_EXPR_DATA, attributes...))
}

// load loads information about the packet into the register.
func load(key uint32) []byte {
	return expression("meta", number(unix.NFTA_META_KEY, key), number(unix.NFTA_META_DREG, unix.NFT_REG_1))
}

// compare ends the rule unless the register has this relation to the value.
func compare(relation uint32, value []byte) []byte {
	return expression("cmp", number(unix.NFTA_CMP_SREG, unix.NFT_REG_1), number(unix.NFTA_CMP_OP, relation),
		nested(unix.NFTA_CMP_DATA, attribute(unix.NFTA_DATA_VALUE, value)))
}

// drop drops the packet.
var drop = expression("immediate", number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT),
	nested(unix.NFTA_IMMEDIATE_DATA, nested(unix.NFTA_DATA_VERDICT, number(unix.NFTA_VERDICT_CODE, verdictDrop))))

// verdictDrop is NF_DROP, which package unix lacks.
const verdictDrop = 0

// enqueue lets packets wait in our queue. If no process has that, they pass.
var enqueue = expression("queue", short(unix.NFTA_QUEUE_NUM, queueNumber), short(unix.NFTA_QUEUE_TOTAL, 1), short(unix.NFTA_QUEUE_FLAGS, unix.NFT_QUEUE_FLAG_BYPASS))

// enqueueAsIPTables does the same on kernels without nft_queue, as a rule of iptables-nft would: with revision 3 of target NFQUEUE,
// whose data are the first queue, the number of queues, and flags, padded to eight bytes.
var enqueueAsIPTables = expression("target", text(unix.NFTA_TARGET_NAME, "NFQUEUE"), number(unix.NFTA_TARGET_REV, 3),
	attribute(unix.NFTA_TARGET_INFO, native(queueNumber), native(1), native(unix.NFT_QUEUE_FLAG_BYPASS), native(0)))

// some matches this percentage of all packets.
func some(percent int) rule {
	return rule{
		expression("numgen", number(unix.NFTA_NG_DREG, unix.NFT_REG_1), number(unix.NFTA_NG_MODULUS, 100), number(unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM)),
		expression("byteorder", number(unix.NFTA_BYTEORDER_SREG, unix.NFT_REG_1), number(unix.NFTA_BYTEORDER_DREG, unix.NFT_REG_1),
			number(unix.NFTA_BYTEORDER_OP, unix.NFT_BYTEORDER_HTON), number(unix.NFTA_BYTEORDER_LEN, 4), number(unix.NFTA_BYTEORDER_SIZE, 4)),
		compare(unix.NFT_CMP_LT, bigEndian(uint32(percent))), //nolint:gosec // up to 100
	}
}

// The offsets of addresses in the headers of IPv4 and IPv6.
var (
	sourceOffset      = map[bool]uint32{true: 12, false: 8}
	destinationOffset = map[bool]uint32{true: 16, false: 24}
)

// from matches packets from an address, and to matches those to an address.
func from(a netip.Addr) rule { return header(a, sourceOffset[a.Is4()]) }
func to(a netip.Addr) rule   { return header(a, destinationOffset[a.Is4()]) }

func header(a netip.Addr, offset uint32) rule {
	protocol := byte(unix.NFPROTO_IPV6)
	if a.Is4() {
		protocol = unix.NFPROTO_IPV4
	}
	value := a.AsSlice()
	return rule{
		load(unix.NFT_META_NFPROTO), compare(unix.NFT_CMP_EQ, []byte{protocol}),
		expression("payload", number(unix.NFTA_PAYLOAD_DREG, unix.NFT_REG_1), number(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_NETWORK_HEADER),
			number(unix.NFTA_PAYLOAD_OFFSET, offset), number(unix.NFTA_PAYLOAD_LEN, uint32(len(value)))), //nolint:gosec // 4 or 16
		compare(unix.NFT_CMP_EQ, value),
	}
}

// enters matches packets that enter by an interface, and leaves matches those that leave by it.
func enters(name string) rule { return onInterface(unix.NFT_META_IIFNAME, name) }
func leaves(name string) rule { return onInterface(unix.NFT_META_OIFNAME, name) }

func onInterface(key uint32, name string) rule {
	padded := make([]byte, unix.IFNAMSIZ)
	copy(padded, name)
	return rule{load(key), compare(unix.NFT_CMP_EQ, padded)}
}

// join returns a rule that matches what all of these match.
func join(parts ...rule) (all rule) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
