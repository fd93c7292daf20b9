package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Gaps counts the times without a coordinator.
type Gaps struct {
	// since is the beginning of the first tenure that was counted.
	// +required
	Since metav1.Time `json:"since"`

	// failures is the number of gaps since then after a failure.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Failures int64 `json:"failures,omitempty"`

	// failureMicros is the length of these gaps together, in microseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	FailureMicros int64 `json:"failureMicros,omitempty"`

	// others is the number of all other gaps since then.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Others int64 `json:"others,omitempty"`

	// otherMicros is the length of these gaps together, in microseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	OtherMicros int64 `json:"otherMicros,omitempty"`

	// days has the days, in UTC, on which a gap ended, with the newest first.
	// +optional
	// +listType=map
	// +listMapKey=date
	// +kubebuilder:validation:MaxItems=31
	Days []GapDay `json:"days,omitempty"`

	// longest has the three longest gaps of these days, with the longest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	Longest []Gap `json:"longest,omitempty"`
}

// GapDay counts the gaps that ended on a day.
type GapDay struct {
	// date is the day in UTC, as in 2026-11-20.
	// +required
	// +kubebuilder:validation:MinLength=10
	// +kubebuilder:validation:MaxLength=10
	Date string `json:"date"`

	// count is the number of gaps.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Count int32 `json:"count"`

	// micros is the length of the gaps together, in microseconds.
	// +required
	// +kubebuilder:validation:Minimum=0
	Micros int64 `json:"micros"`
}

// Gap is a time without a coordinator.
type Gap struct {
	// until is the time at which the next tenure began.
	// +required
	Until metav1.MicroTime `json:"until"`

	// micros is its length in microseconds.
	// +required
	// +kubebuilder:validation:Minimum=0
	Micros int64 `json:"micros"`

	// pod is the name of the pod of the coordinator before.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod"`

	// endReason is why the tenure before had ended.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	EndReason EndReason `json:"endReason,omitempty"`
}
