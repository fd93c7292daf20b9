// Package live injects faults into a group on a cluster, observes what follows, and undoes what must be undone. Package
// chaos decides which faults, and judges the observations.
package live
