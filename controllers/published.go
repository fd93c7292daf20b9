package controllers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

const (
	// maxCachedDocument has room for a group of about thirty members and its previous list. The
	// cache doesn't retain a larger document: a user can label any number of ConfigMaps of a
	// megabyte. The operator reads it when it has changed, and only that of a group that exists.
	maxCachedDocument = 8 << 10
	// contentKey is the key under which the cache has a digest of a ConfigMap's data. The API
	// server accepts no such key.
	contentKey = "/content"
)

// stripConfigMap retains a digest of the data, and the document if it is small.
func stripConfigMap(object any) (any, error) {
	configMap, ok := object.(*corev1.ConfigMap)
	if !ok || configMap.BinaryData[contentKey] != nil {
		return object, nil
	}
	stripped := &corev1.ConfigMap{ObjectMeta: stripOwned(&configMap.ObjectMeta), BinaryData: map[string][]byte{contentKey: contentOf(configMap)}}
	if document, ok := configMap.Data[control.DocumentKey]; ok && len(document) <= maxCachedDocument {
		stripped.Data = map[string]string{control.DocumentKey: document}
	}
	return stripped, nil
}

// contentOf returns a digest of the data of a ConfigMap.
func contentOf(configMap *corev1.ConfigMap) []byte {
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

// publishedDocument is the document in the ConfigMap of a group.
type publishedDocument struct {
	// content is the digest of the ConfigMap's data.
	content []byte
	// document is shared by reconciles, which don't change it. It is nil if the operator can't
	// have written it.
	document *control.Document
}

func newPublishedDocument(content []byte, text string) publishedDocument {
	document, err := membership.DecodeDocument(text)
	if err != nil {
		document = nil // It is replaced.
	}
	return publishedDocument{content, document}
}

// gatherConfigMap reads the ConfigMap of the group, and the document in it.
func (r *Reconciler) gatherConfigMap(ctx context.Context, s *snapshot) error {
	found, err := getObject[corev1.ConfigMap](ctx, r, s.key.Namespace, control.ConfigMapName(s.key.Name))
	if err != nil || found == nil {
		return err
	}
	if err := s.setConfigMap(found); err != nil {
		return err
	}
	if membership.OwnedByOther(s.configMap, s.group) {
		return nil
	}
	text, cached := s.configMap.Data[control.DocumentKey]
	if !cached && !bytes.Equal(s.state.published.content, s.configMap.BinaryData[contentKey]) {
		whole := &corev1.ConfigMap{}
		err := r.live.Get(ctx, client.ObjectKeyFromObject(s.configMap), whole)
		if apierrors.IsNotFound(err) {
			s.configMap = nil
			return nil
		}
		if err != nil {
			return fmt.Errorf("read ConfigMap %s: %w", s.configMap.Name, err)
		}
		if err := s.setConfigMap(whole); err != nil {
			return err
		}
		if membership.OwnedByOther(s.configMap, s.group) {
			return nil
		}
		text = whole.Data[control.DocumentKey]
	}
	if content := s.configMap.BinaryData[contentKey]; !bytes.Equal(s.state.published.content, content) {
		s.state.published = newPublishedDocument(content, text)
	}
	s.document = s.state.published.document
	return nil
}

// setConfigMap sets the ConfigMap as the cache has it.
func (s *snapshot) setConfigMap(found *corev1.ConfigMap) error {
	stripped, err := stripConfigMap(found)
	if err != nil {
		return err
	}
	s.configMap, _ = stripped.(*corev1.ConfigMap)
	return nil
}
