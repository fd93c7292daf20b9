package live

import (
	"context"
	"slices"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchObjects calls changed for each object and each of its changes until ctx ends. After an interruption, such as an
// outage of the API server, it continues.
func watchObjects[T client.Object](
	ctx context.Context, c client.WithWatch, list client.ObjectList, object T, changed func(object T, deleted bool),
	options ...client.ListOption,
) {
	with := func(raw metav1.ListOptions) []client.ListOption {
		return append(slices.Clip(options), &client.ListOptions{Raw: &raw})
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			into, _ := list.DeepCopyObject().(client.ObjectList) // A copy has the same type.
			return into, c.List(ctx, into, with(raw)...)
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			return c.Watch(ctx, list, with(raw)...)
		},
	}
	call := func(got any, deleted bool) {
		if tombstone, ok := got.(cache.DeletedFinalStateUnknown); ok {
			got = tombstone.Obj
		}
		if object, ok := got.(T); ok {
			changed(object, deleted)
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(source, c), ObjectType: object,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(got any) { call(got, false) },
			UpdateFunc: func(_, got any) { call(got, false) },
			DeleteFunc: func(got any) { call(got, true) },
		},
	})
	// Otherwise, client-go logs each failed request.
	controller.RunWithContext(klog.NewContext(ctx, logr.Discard()))
}
