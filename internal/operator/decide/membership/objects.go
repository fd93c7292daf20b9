package membership

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/conclave-dev/conclave/api/v1"
)

const kind = "ElectionGroup"

// ownedMeta returns the metadata of an object that is deleted with its group.
func ownedMeta(group *v1.ElectionGroup, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: group.Namespace,
		Name:      name,
		Labels:    map[string]string{v1.LabelGroup: group.Name},
		OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(group, v1.GroupVersion.WithKind(kind)),
		},
	}
}

// OfOtherGroup reports whether an object belongs to another group of the name.
func OfOtherGroup(object metav1.Object, group *v1.ElectionGroup) bool {
	return !OwnedByOther(object, group) && OfOtherUID(object, group)
}

// OfOtherUID reports whether an object has the UID of another group as its owner. Such an object is replaced: the
// garbage collector would delete it, and server-side apply can't replace an owner that another manager has set, for
// example a restore from a backup.
func OfOtherUID(object metav1.Object, group *v1.ElectionGroup) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	return owner != nil && owner.UID != group.UID
}

// OwnedByOther reports whether an object with a name that the group needs does not belong to the group: it has another
// owner, or neither an owner nor the group's label. An object of an earlier group of the same name belongs to the
// group, including one that was restored from a backup.
func OwnedByOther(object metav1.Object, group *v1.ElectionGroup) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil {
		return object.GetLabels()[v1.LabelGroup] != group.Name
	}
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	return err != nil || version.Group != v1.GroupVersion.Group || owner.Kind != kind || owner.Name != group.Name
}
