package machine

import (
	"fmt"
	"slices"
	"testing"
)

func TestParseHierarchiesPrefersVersion1(t *testing.T) {
	const (
		first = "28 27 0:24 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
			"29 27 0:25 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n" +
			"30 27 0:26 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/agent,name=systemd\n"
		second    = "31 27 0:27 / %s rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
		elsewhere = "32 27 0:27 / /mnt/cgroup rw - cgroup2 cgroup2 rw\n33 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
	)
	firstFound := []Hierarchy{
		{Mount: "/sys/fs/cgroup/blkio", Options: "blkio"},
		{Mount: "/sys/fs/cgroup/cpu,cpuacct", Options: "cpu,cpuacct"},
		{Mount: "/sys/fs/cgroup/systemd", Options: "name=systemd"},
	}
	for name, test := range map[string]struct {
		mountinfo string
		found     []Hierarchy
	}{
		"version 1": {elsewhere + first, firstFound},
		"version 2": {elsewhere + fmt.Sprintf(second, "/sys/fs/cgroup"), []Hierarchy{{Mount: "/sys/fs/cgroup"}}},
		"version 2 beside a controller": {
			first + fmt.Sprintf(second, "/sys/fs/cgroup"), []Hierarchy{{Mount: "/sys/fs/cgroup"}},
		},
		"version 1 over version 2": {
			fmt.Sprintf(second, "/sys/fs/cgroup") + "34 27 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n" + first, firstFound,
		},
		"version 2 without controllers": {fmt.Sprintf(second, "/sys/fs/cgroup/unified") + first, firstFound},
		"mounted elsewhere":             {elsewhere, nil},
	} {
		if found := parseHierarchies(test.mountinfo); !slices.Equal(found, test.found) {
			t.Errorf("%s: got %v, want %v", name, found, test.found)
		}
	}
}
