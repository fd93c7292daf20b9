package cache

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const (
	// maxCachedDocument has room for a group of about thirty members and its previous list. The
	// cache doesn't retain a larger document: a user can label any number of ConfigMaps of a
	// megabyte. The operator reads it when it has changed, and only that of a group that exists.
	maxCachedDocument = 8 << 10
	// digestKey is the key under which the cache has a digest of a ConfigMap's data. The API
	// server accepts no such key.
	digestKey = "/content"
)

// StripConfigMap retains a digest of the data, and the document if it is small.
func StripConfigMap(object any) (any, error) {
	configMap, ok := object.(*corev1.ConfigMap)
	if !ok || configMap.BinaryData[digestKey] != nil {
		return object, nil
	}
	stripped := &corev1.ConfigMap{ObjectMeta: stripOwned(&configMap.ObjectMeta), BinaryData: map[string][]byte{digestKey: Digest(configMap)}}
	if document, ok := configMap.Data[control.DocumentKey]; ok && len(document) <= maxCachedDocument {
		stripped.Data = map[string]string{control.DocumentKey: document}
	}
	return stripped, nil
}

// Digest returns a digest of the data of a ConfigMap.
func Digest(configMap *corev1.ConfigMap) []byte {
	digest := sha256.New()
	write := func(text string) {
		_ = binary.Write(digest, binary.BigEndian, int64(len(text))) // A digest accepts everything.
		_, _ = digest.Write([]byte(text))
	}
	for _, key := range slices.Sorted(maps.Keys(configMap.Data)) {
		write(key)
		write(configMap.Data[key])
	}
	write("binary")
	for _, key := range slices.Sorted(maps.Keys(configMap.BinaryData)) {
		write(key)
		write(string(configMap.BinaryData[key]))
	}
	return digest.Sum(nil)
}

// StoredDigest returns the digest of the data that the cache retains of a ConfigMap.
func StoredDigest(stripped *corev1.ConfigMap) []byte { return stripped.BinaryData[digestKey] }
