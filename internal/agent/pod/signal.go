package pod

// signal wakes the goroutine that receives from it. Signals that the goroutine hasn't
// received yet are merged into one.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// send never blocks.
func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
