// Command device-owner controls a device: the coordinator writes numbered records to it,
// in order, and continues at the right number after each failover. See README.md.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/conclave-dev/conclave/examples/internal/ledger"
	"github.com/conclave-dev/conclave/examples/internal/workload"
)

// interval is the time between two records.
const interval = 10 * time.Millisecond

func main() {
	workload.Main("device-owner", func(p *workload.Process) workload.Program {
		return workload.Program{Lead: (&owner{p}).lead}
	})
}

// owner is the process that may use the device.
type owner struct{ *workload.Process }

// lead drives the device while this process is coordinator. The device may still execute a
// write of the former owner, so lead doesn't trust what that process has said, or what it
// remembers itself: it asks the device, and the device rejects older tokens from then on.
func (o *owner) lead(ctx context.Context, token uint64) error {
	right := ledger.Entry{Resource: "device", Token: token, By: o.Self}
	err := o.Ledger.Claim(ctx, &right)
	if err == nil {
		fmt.Printf("drives the device from record %d, token %d\n", right.Seq+1, token)
		err = o.drive(ctx, right)
	}
	return workload.Stopped(ctx, err)
}

// drive writes records until ctx ends, or until the device rejects the token.
func (o *owner) drive(ctx context.Context, record ledger.Entry) error {
	for workload.Pause(ctx, interval) {
		// Between the check of ctx in Pause and the arrival of the record at the device,
		// this process may be paused for any time. The token protects the device then.
		record.Seq++
		record.Note = time.Now().UTC().Format(time.RFC3339Nano)
		if err := o.Ledger.Write(ctx, record); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}
