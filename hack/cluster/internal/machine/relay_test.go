package machine

import (
	"io"
	"net"
	"testing"

	"github.com/conclave-dev/conclave/internal/testing/must"
)

// The server answers when it has received the end of the client's data.
func TestRelayForwardsDataAndEndOfData(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer inner.Close()
	go func() {
		connection, err := inner.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		received, _ := io.ReadAll(connection)
		_, _ = connection.Write(append([]byte("received "), received...))
	}()
	outer, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer outer.Close()
	go relay(outer, inner.Addr().String())

	connection, err := net.Dial("tcp", outer.Addr().String())
	must.Succeed(t, err)
	defer connection.Close()
	if _, err := connection.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	half, ok := connection.(*net.TCPConn)
	if !ok {
		t.Fatalf("got a %T, want a TCP connection", connection)
	}
	must.Succeed(t, half.CloseWrite())
	if answer, err := io.ReadAll(connection); string(answer) != "received hello" || err != nil {
		t.Errorf("got response %q, error %v", answer, err)
	}
}
