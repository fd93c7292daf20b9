package machine

import (
	"io"
	"net"
	"testing"
)

// The server answers when it has received the end of the client's data.
func TestRelayForwardsDataAndEndOfData(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	go relay(outer, inner.Addr().String())

	connection, err := net.Dial("tcp", outer.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := connection.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	half, ok := connection.(*net.TCPConn)
	if !ok {
		t.Fatalf("got a %T, want a TCP connection", connection)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(connection); string(answer) != "received hello" || err != nil {
		t.Errorf("got response %q, error %v", answer, err)
	}
}
