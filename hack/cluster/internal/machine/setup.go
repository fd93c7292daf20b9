package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// setUp sets up the machine in its new namespaces: it mounts /proc, /sys, the cgroups, /run and the folders of the spec.
func setUp(spec Spec) error {
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("cannot set the hostname: %w", err)
	}
	// Mounts of the machine don't propagate to the host. Unmounts of the host propagate to the machine, so that the machine
	// doesn't keep the host's file systems busy.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	hierarchies, err := Hierarchies()
	if err != nil {
		return err
	}
	// Open the folders of the host before the mount on /run hides them.
	sources, err := openSources(spec.Binds)
	if err != nil {
		return err
	}
	for _, filesystem := range []struct {
		kind, target string
		flags        uintptr
	}{
		{"proc", "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"sysfs", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV},
	} {
		if err := mount(filesystem.kind, filesystem.target, filesystem.kind, filesystem.flags, ""); err != nil {
			return err
		}
	}
	if err := bindAll(spec.Binds, sources); err != nil {
		return err
	}
	if err := mountCgroups(hierarchies); err != nil {
		return err
	}
	// As on a real computer, the machine's mounts propagate to pods that request it.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return err
	}
	if err := shadowKernelSettings(); err != nil {
		return err
	}
	if err := shadowNames(); err != nil {
		return err
	}
	return configureNetwork()
}

func mount(source, target, kind string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("cannot mount %s on %s: %w", strings.TrimSpace(kind+" "+source), target, err)
	}
	return nil
}

func openSources(binds []Bind) ([]*os.File, error) {
	sources := make([]*os.File, len(binds))
	for i, bind := range binds {
		file, err := os.Open(bind.Source)
		if err != nil {
			return nil, fmt.Errorf("cannot open the source of %s: %w", bind.Target, err)
		}
		sources[i] = file
	}
	return sources, nil
}

func bindAll(binds []Bind, sources []*os.File) error {
	for i, bind := range binds {
		if err := os.MkdirAll(bind.Target, 0o755); err != nil {
			return fmt.Errorf("cannot create the folder %s: %w", bind.Target, err)
		}
		source := fmt.Sprintf("/proc/self/fd/%d", sources[i].Fd())
		if err := mount(source, bind.Target, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		sources[i].Close()
		if bind.ReadOnly {
			flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY)
			if err := mount("", bind.Target, "", flags, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// mountCgroups mounts the cgroups. In the cgroup namespace, the machine's cgroup is the root.
func mountCgroups(hierarchies []Hierarchy) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if len(hierarchies) == 1 && hierarchies[0].Options == "" {
		if err := mount("cgroup2", cgroupRoot, "cgroup2", flags, ""); err != nil {
			return err
		}
		return leaveRootCgroup()
	}
	if err := mount("tmpfs", cgroupRoot, "tmpfs", flags, "mode=755"); err != nil {
		return err
	}
	for _, hierarchy := range hierarchies {
		if err := os.Mkdir(hierarchy.Mount, 0o755); err != nil {
			return fmt.Errorf("cannot create the folder %s: %w", hierarchy.Mount, err)
		}
		if err := mount("cgroup", hierarchy.Mount, "cgroup", flags, hierarchy.Options); err != nil {
			return err
		}
	}
	return linkControllers(hierarchies)
}

// linkControllers creates links for controllers that are mounted together, because programs look for each one by name.
func linkControllers(hierarchies []Hierarchy) error {
	for _, hierarchy := range hierarchies {
		together := strings.Split(hierarchy.Options, ",")
		if len(together) < 2 {
			continue
		}
		for _, controller := range together {
			link := filepath.Join(cgroupRoot, controller)
			if err := os.Symlink(filepath.Base(hierarchy.Mount), link); err != nil && !errors.Is(err, os.ErrExist) {
				return fmt.Errorf("cannot link the controller %s: %w", controller, err)
			}
		}
	}
	return nil
}

// leaveRootCgroup moves this process to a child cgroup: a cgroup of version 2 with processes cannot delegate controllers.
func leaveRootCgroup() error {
	leaf := filepath.Join(cgroupRoot, "machine")
	if err := os.Mkdir(leaf, 0o755); err != nil {
		return fmt.Errorf("cannot create a cgroup for the machine's own programs: %w", err)
	}
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("cannot join the cgroup for the machine's own programs: %w", err)
	}
	// The launcher has closed all its files, but the kernel may not have removed it from the cgroup yet.
	const attempts = 100
	var err error
	for range attempts {
		if err = enableControllers(cgroupRoot); err == nil {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// shadowKernelSettings hides kernel settings that kubelet sets and that belong to the whole computer. It mounts regular
// files with kubelet's values over them.
func shadowKernelSettings() error {
	for name, value := range map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	} {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); err != nil {
			continue // This kernel doesn't have the setting.
		}
		if err := shadow(target, value+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// shadow mounts a file with this content over a file.
func shadow(target, content string) error {
	cover := filepath.Join("/run/conclave", "shadow"+strings.ReplaceAll(target, "/", "-"))
	if err := os.WriteFile(cover, []byte(content), 0o644); err != nil {
		return fmt.Errorf("cannot write the replacement of %s: %w", target, err)
	}
	return mount(cover, target, "", unix.MS_BIND, "")
}

// shadowNames hides the host's /etc/hosts and /etc/resolv.conf. containerd copies them to some pods, but the machine cannot
// reach their addresses.
func shadowNames() error {
	for target, content := range map[string]string{
		"/etc/hosts":       "127.0.0.1 localhost\n",
		"/etc/resolv.conf": "",
	} {
		if _, err := os.Stat(target); err == nil {
			if err := shadow(target, content); err != nil {
				return err
			}
			continue
		}
		// The file may be a link to a file below /run, which the machine has replaced.
		link, err := os.Readlink(target)
		if err == nil && !filepath.IsAbs(link) {
			link = filepath.Join(filepath.Dir(target), link)
		}
		// Elsewhere, the file would be written to the host's disk.
		if err != nil || !strings.HasPrefix(link, "/run/") && !strings.HasPrefix(link, "/var/run/") {
			return fmt.Errorf("containerd needs the file %s: create it on the host", target)
		}
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			return fmt.Errorf("cannot create the folder of %s: %w", link, err)
		}
		if err := os.WriteFile(link, []byte(content), 0o644); err != nil {
			return fmt.Errorf("cannot write %s: %w", link, err)
		}
	}
	return nil
}

// configureNetwork configures the machine's network namespace.
func configureNetwork() error {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return fmt.Errorf("cannot enable IP forwarding: %w", err)
	}
	// The cluster uses IPv4 only. With IPv6, duplicate address detection would delay each link for seconds.
	err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot disable IPv6: %w", err)
	}
	return nil
}
