package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// TempSuffix ends the name of a file while ReplaceFile writes it. Files with this
// suffix can be removed when no process writes to the directory.
const TempSuffix = ".new"

// ReplaceFile replaces a file atomically: if the machine stops, either the old content
// or the new one is there. When ReplaceFile returns nil, the new content is durable.
func ReplaceFile(path string, data []byte) error {
	temp := path + TempSuffix
	err := write(temp, data)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, remove(temp))
	}
	return syncDir(path)
}

func write(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncDir makes the directory entry of a file durable.
func syncDir(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
