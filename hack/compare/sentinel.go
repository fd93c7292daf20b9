package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// sentinelElector is an application beside a Redis server and a Sentinel.
type sentinelElector struct {
	spec     *spec
	group    int
	server   *redis.Client
	sentinel *redis.SentinelClient
}

const (
	redisPort    = 6379
	sentinelPort = "26379"
)

func sentinelStarter(downAfter, failoverTimeout string) starter {
	return func(ctx context.Context, s *spec) ([]elector, error) {
		config := filepath.Join(s.Folder, "sentinel.conf")
		_, err := os.Stat(config)
		fresh := errors.Is(err, fs.ErrNotExist)
		var text strings.Builder
		text.WriteString(
			fmt.Sprintf("port %s\nbind %s\nbind-source-addr %s\ndir %s\nprotected-mode no\nsentinel announce-ip %s\n",
				sentinelPort, s.host(), s.host(), s.Folder, s.host()))
		var all []elector
		for i := range s.Groups {
			master := s.Hosts[0]
			if !fresh {
				if master, err = s.askOthers(ctx, groupName(i)); err != nil {
					return nil, err
				}
			}
			port := strconv.Itoa(redisPort + i)
			arguments := []string{
				"redis-server", "--port", port, "--bind", s.host(), "--bind-source-addr", s.host(), "--dir", s.Folder, "--save", "",
				"--protected-mode", "no", "--replica-announce-ip", s.host(),
			}
			if master != s.host() {
				arguments = append(arguments, "--replicaof", master, port)
			}
			if err := s.daemon(arguments...); err != nil {
				return nil, err
			}
			text.WriteString(strings.NewReplacer("GROUP", groupName(i), "MASTER", master, "PORT", port, "DOWN", downAfter,
				"TIMEOUT", failoverTimeout).Replace(
				"sentinel monitor GROUP MASTER PORT 2\nsentinel down-after-milliseconds GROUP DOWN\nsentinel " +
					"failover-timeout GROUP TIMEOUT\n"))
			all = append(all, &sentinelElector{
				s, i, redis.NewClient(s.redisOptions(s.host(), port)),
				redis.NewSentinelClient(s.redisOptions(s.host(), sentinelPort)),
			})
		}
		if fresh {
			if err := os.WriteFile(config, []byte(text.String()), 0o600); err != nil {
				return nil, err
			}
		}
		return all, s.daemon("redis-server", config, "--sentinel")
	}
}

func (s *spec) redisOptions(host, port string) *redis.Options {
	return &redis.Options{
		Addr: net.JoinHostPort(host, port), MaxRetries: -1, Dialer: s.dialer().DialContext, DisableIdentity: true,
	}
}

// askOthers asks the other Sentinels who the master is.
func (s *spec) askOthers(ctx context.Context, group string) (string, error) {
	for _, host := range s.Hosts {
		if host == s.host() {
			continue
		}
		client := redis.NewSentinelClient(s.redisOptions(host, sentinelPort))
		address, err := client.GetMasterAddrByName(ctx, group).Result()
		if err = errors.Join(err, client.Close()); err == nil && len(address) > 0 {
			return address[0], nil
		}
	}
	return "", fmt.Errorf("no Sentinel knows the master of %s", group)
}

func (e *sentinelElector) run(ctx context.Context, to *reporter) error {
	subscription := e.sentinel.Subscribe(ctx, "+switch-master")
	defer subscription.Close()
	for ctx.Err() == nil {
		message, err := subscription.Receive(ctx)
		switch m := message.(type) {
		case *redis.Subscription: // Changes before it are missing.
			if address, err := e.sentinel.GetMasterAddrByName(ctx, groupName(e.group)).Result(); err == nil && len(address) > 0 {
				to.know(e.spec.indexOf(address[0]))
			}
		case *redis.Message: // The group, the former master and its port, the new one and its port.
			if words := strings.Fields(m.Payload); len(words) == 5 && words[0] == groupName(e.group) {
				to.know(e.spec.indexOf(words[3]))
			}
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // The Sentinel may be starting.
		}
	}
	return nil
}

func (e *sentinelElector) leads() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	role, err := e.server.Do(ctx, "ROLE").Slice()
	return err == nil && len(role) > 0 && role[0] == "master"
}
