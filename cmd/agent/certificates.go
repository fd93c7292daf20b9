package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/conclave-dev/conclave/internal/agent/config"
	"github.com/conclave-dev/conclave/internal/agent/state"
	"github.com/conclave-dev/conclave/internal/command"
	"github.com/conclave-dev/conclave/internal/protocol/identity"
)

const (
	oneDay = 24 * time.Hour
	// caDays is the validity of a new CA, and maxDays the maximum validity of a
	// certificate, which cannot exceed the validity of its CA.
	caDays  = 3650
	maxDays = 3650
)

type certificateRequest struct {
	groups, members []string
	domain, out     string
	days            int
}

func newCertificates() *cobra.Command {
	var r certificateRequest
	cmd := &cobra.Command{
		Use:   "certificates",
		Short: "Create keys and certificates for the members of groups",
		Long: `Create keys and certificates for the members of groups.

The command writes MEMBER.pem and MEMBER-key.pem for each member, and the CA
(certificate authority) that signs them: ca.pem, which every agent needs, and
ca-key.pem, which no agent needs. It reuses an existing CA and replaces existing
certificates. Running agents load replaced certificates automatically.`,
		Example: `  conclave-agent certificates --group ledger --member a --member b --member c --out certs`,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.check(); err != nil {
				return err
			}
			return r.make(cmd)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&r.groups, "group", nil, "a group of the members; can be repeated")
	flags.StringSliceVar(&r.members, "member", nil, "a member; can be repeated")
	flags.StringVar(&r.out, "out", "", "the directory for the files")
	flags.StringVar(&r.domain, "domain", "default", "the domain in the agents' configurations")
	flags.IntVar(&r.days, "days", 365, "the number of days for which the certificates are valid")
	return cmd
}

func (r *certificateRequest) check() error {
	switch {
	case len(r.groups) == 0:
		return command.UsageErrorf("--group must be the name of a group, such as --group ledger")
	case len(r.members) == 0:
		return command.UsageErrorf("--member must be the name of a member, such as --member a --member b")
	case r.out == "":
		return command.UsageErrorf("--out must be a directory for the files, such as --out certs")
	case r.days < 1 || r.days > maxDays:
		return command.UsageErrorf("--days must be from 1 to %d, got %d", maxDays, r.days)
	}
	if err := config.CheckGroupName(r.domain); err != nil {
		return command.UsageErrorf("--domain %s", err)
	}
	seen := map[string]bool{}
	for _, group := range r.groups {
		if err := config.CheckGroupName(group); err != nil {
			return command.UsageErrorf("--group %s", err)
		}
		if seen[group] {
			return command.UsageErrorf("--group %s must not be repeated", group)
		}
		seen[group] = true
	}
	files := map[string]string{"ca.pem": "the CA", "ca-key.pem": "the CA"}
	for _, member := range r.members {
		if err := config.CheckMemberName(member); err != nil {
			return command.UsageErrorf("--member %s", err)
		}
		for _, file := range []string{member + ".pem", member + "-key.pem"} {
			if other, ok := files[file]; ok {
				return command.UsageErrorf("--member %s and %s would both be stored in %s: use separate directories",
					member, other, file)
			}
			files[file] = "member " + member
		}
	}
	return nil
}

func (r *certificateRequest) make(cmd *cobra.Command) error {
	if err := os.MkdirAll(r.out, 0o700); err != nil {
		return fmt.Errorf("cannot create the directory: %w", err)
	}
	authority, fresh, err := r.loadOrCreateCA()
	if err != nil {
		return err
	}
	state := "reused"
	if fresh {
		state = "new"
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: CA, %s, until %s\n", r.path("ca.pem"), state,
		authority.NotAfter().Format(time.DateOnly))
	for _, member := range r.members {
		var names identity.Names
		for _, group := range r.groups {
			names = append(names, identity.Name{Domain: r.domain, Group: group, Member: member})
		}
		valid := time.Duration(r.days) * oneDay
		pair, err := authority.Issue(names, valid)
		if err != nil {
			return err
		}
		if err := r.write(member, pair); err != nil {
			return err
		}
		until := time.Now().Add(valid)
		if last := authority.NotAfter(); until.After(last) {
			until = last
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, until %s\n", r.path(member+".pem"), names, until.Format(time.DateOnly))
	}
	return nil
}

func (r *certificateRequest) path(name string) string { return filepath.Join(r.out, name) }

// loadOrCreateCA returns the CA in the directory, or creates one. If only one of its two files exists, loadOrCreateCA
// returns an error: agents may rely on the existing certificate, so replacing the CA could disconnect them.
func (r *certificateRequest) loadOrCreateCA() (*identity.CA, bool, error) {
	cert, key := r.path("ca.pem"), r.path("ca-key.pem")
	hasCert, err := exists(cert)
	if err != nil {
		return nil, false, err
	}
	hasKey, err := exists(key)
	if err != nil {
		return nil, false, err
	}
	switch {
	case hasCert && hasKey:
		authority, err := identity.LoadCA(cert, key)
		return authority, false, err
	case hasCert:
		return nil, false, fmt.Errorf("%s exists without %s: add the key, or choose another directory", cert, key)
	case hasKey:
		return nil, false, fmt.Errorf("%s exists without %s: add the certificate, or choose another directory", key, cert)
	}
	authority, pair, err := identity.NewCA("Conclave CA of "+r.domain, caDays*oneDay)
	if err != nil {
		return nil, false, err
	}
	return authority, true, r.write("ca", pair)
}

func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// write replaces the files of a pair. Until both are replaced, agents continue to use the previous pair.
func (r *certificateRequest) write(name string, pair identity.Pair) error {
	if err := state.ReplaceFile(r.path(name+"-key.pem"), pair.Key, 0o600); err != nil {
		return fmt.Errorf("cannot write key: %w", err)
	}
	if err := state.ReplaceFile(r.path(name+".pem"), pair.Cert, 0o644); err != nil {
		return fmt.Errorf("cannot write certificate: %w", err)
	}
	return nil
}
