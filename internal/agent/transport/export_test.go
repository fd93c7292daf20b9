package transport

import (
	"net"
	"time"
)

// Refuses calls refuses on a Transport with this listener.
func Refuses(listener net.Listener, address string, timeout time.Duration) bool {
	return (&Transport{Config: Config{Listener: listener}}).refuses(address, timeout)
}
