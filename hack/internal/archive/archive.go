// Package archive writes archives that depend only on the files and a date: the files are sorted by name, and belong to
// root.
package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// File is a file of an archive.
type File struct {
	Name       string
	Executable bool
	Content    []byte
}

func (f File) mode() fs.FileMode {
	if f.Executable {
		return 0o755
	}
	return 0o644
}

// SourceDate returns the date of all files: SOURCE_DATE_EPOCH, by default 1970-01-01.
func SourceDate() (time.Time, error) {
	seconds := cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), "0")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH must be a number of seconds, got %q", seconds)
	}
	return time.Unix(n, 0).UTC(), nil
}

// Folder reads all files below a folder, and follows symbolic links.
func Folder(folder fs.FS, path string) ([]File, error) {
	var files []File
	err := fs.WalkDir(folder, path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := fs.Stat(folder, name)
		if err != nil {
			return err
		}
		if info.IsDir() {
			linked, err := Folder(folder, name)
			files = append(files, linked...)
			return err
		}
		content, err := fs.ReadFile(folder, name)
		files = append(files, File{Name: name, Content: content})
		return err
	})
	return files, err
}

// Write writes an archive. The ending of its name is that of the format: .tar, .tar.gz, .tgz, .zip or .whl.
func Write(file string, date time.Time, files []File) error {
	write := Tar
	switch filepath.Ext(file) {
	case ".gz", ".tgz":
		write = tarGzip
	case ".zip", ".whl":
		write = zipped
	}
	var content bytes.Buffer
	if err := write(&content, date, files); err != nil {
		return err
	}
	return os.WriteFile(file, content.Bytes(), 0o644)
}

func sorted(files []File) []File {
	return slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Name, b.Name) })
}

// Tar writes a tar archive.
func Tar(to io.Writer, date time.Time, files []File) error {
	writer := tar.NewWriter(to)
	for _, file := range sorted(files) {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: file.Name, Size: int64(len(file.Content)), Mode: int64(file.mode()),
			ModTime: date.Truncate(time.Second), Format: tar.FormatPAX,
		}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		if _, err := writer.Write(file.Content); err != nil {
			return err
		}
	}
	return writer.Close()
}

// tarGzip writes a compressed tar archive. The header of gzip has no date.
func tarGzip(to io.Writer, date time.Time, files []File) error {
	compressed := gzip.NewWriter(to)
	if err := Tar(compressed, date, files); err != nil {
		return err
	}
	return compressed.Close()
}

// zipEpoch is the first date of the format.
var zipEpoch = time.Date(1980, time.January, 1, 0, 0, 0, 0, time.UTC)

func zipped(to io.Writer, date time.Time, files []File) error {
	if date.Before(zipEpoch) {
		date = zipEpoch
	}
	writer := zip.NewWriter(to)
	for _, file := range sorted(files) {
		header := &zip.FileHeader{Name: file.Name, Method: zip.Deflate, Modified: date.UTC()}
		header.SetMode(file.mode())
		content, err := writer.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := content.Write(file.Content); err != nil {
			return err
		}
	}
	return writer.Close()
}
