package transport_test

import (
	"os"
	"testing"
	"time"

	"github.com/conclave-dev/conclave/internal/agent/transport"
	"github.com/conclave-dev/conclave/internal/agent/wire"
	"github.com/conclave-dev/conclave/internal/election"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

// TestACertificateForMoreGroupsCountsOnceItIsNeeded: the connection was made with
// the one before, and nobody is taken for dead because it is made anew. It is the
// same whichever side has called.
func TestACertificateForMoreGroupsCountsOnceItIsNeeded(t *testing.T) {
	for writer, reader := range map[string]string{"a": "b", "b": "a"} {
		t.Run(writer, func(t *testing.T) {
			w := newTown(t)
			paths := w.paths(name(writer))
			files, err := identity.Open(paths, nil)
			if err != nil {
				t.Fatal(err)
			}
			from := w.settle(writer, "127.0.0.1:0", 1, func(c *transport.Config) {
				c.Security = transport.Certificates{Files: files, Domain: "default"}
			})
			to := w.settle(reader, "127.0.0.1:0", 2, func(c *transport.Config) { c.UnauthorizedGrace = 50 * time.Millisecond })
			from.SetPeers(map[string]string{reader: to.address})
			to.SetPeers(map[string]string{writer: from.address})
			from.says(to, 1)

			writes := func(term election.Term) {
				from.Send(reader, transport.Outgoing{Frame: wire.Append(nil, wire.Frame{
					Message: &wire.Message{Group: "audit", Kind: election.Beat, Term: term},
				})})
			}
			eventually(t, "a letter is a stray", func() bool {
				writes(2)
				return len(to.Problems()) > 0
			})
			if to.got(writer + " 2") {
				t.Error("a letter is read in a group that the certificate isn't for")
			}

			fresh := w.paths(name(writer), identity.Name{Domain: "default", Group: "audit", Member: writer})
			for old, is := range map[string]string{paths.Key: fresh.Key, paths.Cert: fresh.Cert} {
				if err := os.Rename(is, old); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "a letter in the new group is read", func() bool {
				writes(3)
				return to.got(writer + " 3")
			})
			from.wantsNoneGone()
			to.wantsNoneGone()
		})
	}
}
