package image

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestFileIsCompleteOrMissing: nodes start side by side, and a start may continue one that was killed. So a file that exists is used.
func TestFileIsCompleteOrMissing(t *testing.T) {
	folder := t.TempDir()
	program, destination := filepath.Join(folder, "program"), filepath.Join(folder, "image.tar")
	content := bytes.Repeat([]byte("program"), 1<<17)
	if err := os.WriteFile(program, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := Write(&want, "example.com/a:1", content); err != nil {
		t.Fatal(err)
	}
	const writers, files = 2, 20
	written := make(chan error, writers)
	for range writers {
		go func() {
			for range files {
				if err := WriteFile(destination, "example.com/a:1", program); err != nil {
					written <- err
					return
				}
			}
			written <- nil
		}()
	}
	for remaining := writers; remaining > 0; {
		select {
		case err := <-written:
			if err != nil {
				t.Fatal(err)
			}
			remaining--
		default:
		}
		if got, err := os.ReadFile(destination); !errors.Is(err, fs.ErrNotExist) && !bytes.Equal(got, want.Bytes()) {
			t.Fatalf("got %d bytes (%v), want %d or no file", len(got), err, want.Len())
		}
	}
	if left, err := filepath.Glob(destination + ".*"); err != nil || len(left) > 0 {
		t.Errorf("got files %v (%v), want none but the image", left, err)
	}
}
