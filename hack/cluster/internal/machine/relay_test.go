package machine

import (
	"io"
	"net"
	"testing"
)

// TestRelay: what is said gets through both ways, and so does that there is no more of it.
func TestRelay(t *testing.T) {
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
		heard, _ := io.ReadAll(connection) // Until the other side has nothing more to say.
		_, _ = connection.Write(append([]byte("heard "), heard...))
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
		t.Fatalf("a connection of TCP is a %T", connection)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(connection); string(answer) != "heard hello" || err != nil {
		t.Errorf("the answer is %q, %v", answer, err)
	}
}
