package controllers

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

// droppedFields are the fields of the status that the API server doesn't store, because its
// CRD is older than the operator. Statuses are compared without them. Otherwise every
// reconcile would write them again, in vain.
//
// They are learned from what the API server returns from a write, so an installation with
// the right CRD pays nothing for this. A field is stored again after a write for another
// reason has shown that, or after a restart.
type droppedFields struct {
	log   logr.Logger
	mu    sync.Mutex
	paths map[string]bool
}

// learn compares a status that was sent with the one that was stored.
func (d *droppedFields) learn(sent, stored *v1.ElectionGroupStatus) error {
	first, second, err := marshalBoth(sent, stored)
	if err != nil || d.count() == 0 && bytes.Equal(first, second) {
		return err
	}
	have, err := paths(second)
	if err != nil {
		return err
	}
	all, err := paths(first)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for path := range all {
		switch known := d.paths[path]; {
		case have[path] && known:
			delete(d.paths, path)
			d.log.Info("the API server stores a field of the status again", "field", path)
		case !have[path] && !known:
			if d.paths == nil {
				d.paths = map[string]bool{}
			}
			d.paths[path] = true
			d.log.Info("the API server doesn't store a field of the status: its CRD is older than the operator; apply the CRD of this version", "field", path)
		}
	}
	return nil
}

func (d *droppedFields) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.paths)
}

// equal reports whether two statuses are the same, except for dropped fields. It compares
// them as JSON, where times have a precision of a second or a microsecond.
func (d *droppedFields) equal(a, b *v1.ElectionGroupStatus) (bool, error) {
	first, second, err := marshalBoth(a, b)
	if err != nil || bytes.Equal(first, second) || d.count() == 0 {
		return bytes.Equal(first, second), err
	}
	d.mu.Lock()
	dropped := maps.Clone(d.paths)
	d.mu.Unlock()
	for _, raw := range []*[]byte{&first, &second} {
		var status any
		if err := json.Unmarshal(*raw, &status); err != nil {
			return false, err
		}
		visit(status, "", func(parent map[string]any, key, path string) {
			if dropped[path] {
				delete(parent, key)
			}
		})
		if *raw, err = json.Marshal(status); err != nil {
			return false, err
		}
	}
	return bytes.Equal(first, second), nil
}

func marshalBoth(a, b *v1.ElectionGroupStatus) (first, second []byte, err error) {
	if first, err = json.Marshal(a); err == nil {
		second, err = json.Marshal(b)
	}
	return first, second, err
}

// paths returns the paths of all fields, such as processes.agentVersion for that of each
// process.
func paths(raw []byte) (map[string]bool, error) {
	var status any
	if err := json.Unmarshal(raw, &status); err != nil {
		return nil, err
	}
	all := map[string]bool{}
	visit(status, "", func(_ map[string]any, _, path string) { all[path] = true })
	return all, nil
}

// visit calls a function for each field of an object, the outer ones first. The function may
// delete the field.
func visit(value any, prefix string, each func(parent map[string]any, key, path string)) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Collect(maps.Keys(value)) {
			each(value, key, prefix+key)
			visit(value[key], prefix+key+".", each)
		}
	case []any:
		for _, item := range value {
			visit(item, prefix, each)
		}
	}
}
