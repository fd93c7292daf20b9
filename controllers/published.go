package controllers

import (
	"bytes"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/conclave-dev/conclave/internal/operator/cache"
	"github.com/conclave-dev/conclave/internal/operator/decide/membership"
	"github.com/conclave-dev/conclave/internal/protocol/control"
)

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
	if !cached && !bytes.Equal(s.state.published.content, cache.StoredDigest(s.configMap)) {
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
	if content := cache.StoredDigest(s.configMap); !bytes.Equal(s.state.published.content, content) {
		s.state.published = newPublishedDocument(content, text)
	}
	s.document = s.state.published.document
	return nil
}

// setConfigMap sets the ConfigMap as the cache has it.
func (s *snapshot) setConfigMap(found *corev1.ConfigMap) error {
	stripped, err := cache.StripConfigMap(found)
	if err != nil {
		return err
	}
	s.configMap, _ = stripped.(*corev1.ConfigMap)
	return nil
}
