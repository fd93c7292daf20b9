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

// ProbeCommand is the internal command that Probe runs.
const ProbeCommand = "kernel-probe"

// Findings are the results of a probe of the kernel. Each is the reason why a feature isn't available, or empty.
type Findings struct {
	Network   string `json:"network"`   // Bridges and veth pairs, which every cluster needs.
	Proxy     string `json:"proxy"`     // ClusterIPs of Services, which every cluster needs.
	Overlay   string `json:"overlay"`   // Overlay file systems for images.
	OOMScores string `json:"oomScores"` // Lowering the OOM score of a process.
}

// Probe tests the features of the kernel and the permissions of the user in temporary namespaces.
func Probe(directory string) (Findings, error) {
	executable, err := os.Executable()
	if err != nil {
		return Findings{}, fmt.Errorf("cannot find this program: %w", err)
	}
	command := exec.Command(executable, ProbeCommand, directory)
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP,
	}
	output, err := command.Output()
	if errors.Is(err, unix.EPERM) {
		return Findings{}, errors.New("cannot create namespaces without CAP_SYS_ADMIN: grant it, for example with docker run --privileged")
	}
	if err != nil {
		return Findings{}, fmt.Errorf("cannot probe the kernel: %w", err)
	}
	var findings Findings
	if err := json.Unmarshal(output, &findings); err != nil {
		return Findings{}, fmt.Errorf("cannot parse the result of the probe: %w", err)
	}
	return findings, nil
}

// RunProbe runs the probe. It is called in the temporary namespaces.
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
		return fmt.Errorf("cannot create a bridge (CONFIG_BRIDGE): %w", err)
	}
	attributes.Name = "probe-a"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "probe-b"}); err != nil {
		return fmt.Errorf("cannot create a veth pair (CONFIG_VETH): %w", err)
	}
	return nil
}

// proxyRules use all features of nftables that kube-proxy uses.
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
		return fmt.Errorf("the kernel rejects the rules of kube-proxy (CONFIG_NF_TABLES and its options): %s", first)
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
		return fmt.Errorf("cannot mount an overlay file system on %s (CONFIG_OVERLAY_FS): %w", directory, err)
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
		return fmt.Errorf("cannot lower the OOM score without CAP_SYS_RESOURCE: %w", err)
	}
	return nil
}
