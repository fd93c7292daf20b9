package live

import "context"

// Calls are machines that call functions when a fault begins and ends.
type Calls struct {
	Inject, Undo func(kind string, containers []string) error
}

func (Calls) notPossible(context.Context, string, string) string { return "" }

func (c Calls) inject(_ context.Context, f *machineFault) error {
	return c.Inject(f.kind, f.containers)
}
func (c Calls) undo(_ context.Context, f *machineFault) error { return c.Undo(f.kind, f.containers) }
