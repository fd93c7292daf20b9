package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ProbeCommand is the command of this program that Probe runs.
const ProbeCommand = "kernel-probe"

// Findings are what a probe found out about the kernel. Each is why something can't be had, or empty.
type Findings struct {
	Network   string `json:"network"`   // Without bridges and cables between namespaces there are no nodes.
	Proxy     string `json:"proxy"`     // Services by ClusterIP.
	Overlay   string `json:"overlay"`   // Layers of images on each other.
	OOMScores string `json:"oomScores"` // Processes less likely to be killed than the one that starts them.
}

// Probe tries out, in namespaces that are gone when it returns, what this kernel and this user can do.
func Probe(directory string) (Findings, error) {
	executable, err := os.Executable()
	if err != nil {
		return Findings{}, fmt.Errorf("find this program: %w", err)
	}
	command := exec.Command(executable, ProbeCommand, directory)
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP,
	}
	output, err := command.Output()
	if errors.Is(err, unix.EPERM) {
		return Findings{}, errors.New("this root may not make namespaces: run it where CAP_SYS_ADMIN is granted (docker run --privileged)")
	}
	if err != nil {
		return Findings{}, fmt.Errorf("try the kernel out: %w", err)
	}
	var findings Findings
	if err := json.Unmarshal(output, &findings); err != nil {
		return Findings{}, fmt.Errorf("read what the probe found: %w", err)
	}
	return findings, nil
}

// RunProbe is what the probe does, in its namespaces.
func RunProbe(directory string) error {
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(Findings{
		Network:   reason(probeNetwork()),
		Proxy:     reason(probeProxy()),
		Overlay:   reason(probeOverlay(directory)),
		OOMScores: reason(probeOOMScores()),
	})
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func probeNetwork() error {
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "probe"
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil {
		return fmt.Errorf("the kernel makes no bridge (CONFIG_BRIDGE): %w", err)
	}
	attributes.Name = "probe-a"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "probe-b"}); err != nil {
		return fmt.Errorf("the kernel makes no veth pair (CONFIG_VETH): %w", err)
	}
	return nil
}

// proxyRules use each feature that kube-proxy's own rules do.
const proxyRules = `
table ip probe {
	set addresses { type ipv4_addr; comment "one"; }
	map services { type ipv4_addr . inet_proto . inet_service : verdict; }
	map affinity { type ipv4_addr : inet_service; flags dynamic; timeout 10s; }
	chain endpoint { meta l4proto tcp dnat to 127.0.0.1:80; }
	chain service { numgen random mod 2 vmap { 0 : goto endpoint, 1 : goto endpoint }; }
	chain filter {
		type filter hook forward priority 0;
		ct state new ip daddr @addresses reject
	}
	chain prerouting {
		type nat hook prerouting priority -100;
		fib daddr type local meta l4proto tcp ip daddr . meta l4proto . th dport vmap @services
	}
	chain postrouting {
		type nat hook postrouting priority 100;
		meta mark & 0x4000 == 0 return
		meta mark set meta mark ^ 0x4000
		masquerade fully-random
	}
}
`

func probeProxy() error {
	if _, err := exec.LookPath("nft"); err != nil {
		return errors.New("nft is missing: apt-get install nftables")
	}
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(proxyRules)
	if output, err := command.CombinedOutput(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(string(output)), "\n")
		return fmt.Errorf("the kernel refuses the rules (CONFIG_NF_TABLES and its options): %s", first)
	}
	return nil
}

func probeOverlay(directory string) error {
	root, err := os.MkdirTemp(directory, "probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(root)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			return err
		}
	}
	merged := filepath.Join(root, "merged")
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", root)
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return fmt.Errorf("the kernel mounts no overlay on %s (CONFIG_OVERLAY_FS): %w", directory, err)
	}
	return unix.Unmount(merged, 0)
}

func probeOOMScores() error {
	const file = "/proc/self/oom_score_adj"
	current, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	score, err := strconv.Atoi(strings.TrimSpace(string(current)))
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(max(score-1, -1000))), 0); err != nil {
		return fmt.Errorf("without CAP_SYS_RESOURCE: %w", err)
	}
	return nil
}
