package state

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// TempSuffix is behind the name of a file while it is being written. What has it
// can be removed when nobody writes.
const TempSuffix = ".new"

// ReplaceFile leaves the old file or the new one, whenever the machine stops. When it
// returns nil, that is the new one.
func ReplaceFile(path string, data []byte) error {
	fresh := path + TempSuffix
	err := write(fresh, data)
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return errors.Join(err, remove(fresh))
	}
	return syncDir(path)
}

// RemoveFile removes a file, if it is there.
func RemoveFile(path string) error {
	if err := remove(path); err != nil {
		return err
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

// settle has the folder know what is in it.
func syncDir(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
