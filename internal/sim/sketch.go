package sim

import (
	"math"
	"math/bits"
)

// sketch estimates the number of distinct values that were added, with an error of
// about 1%, without storing them. It is a HyperLogLog.
type sketch struct {
	registers [1 << sketchBits]uint8
}

const sketchBits = 13

func (s *sketch) add(x uint64) {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	i := x >> (64 - sketchBits)
	zeros := uint8(bits.LeadingZeros64(x<<sketchBits|1<<(sketchBits-1))) + 1
	s.registers[i] = max(s.registers[i], zeros)
}

func (s *sketch) merge(other *sketch) {
	for i, r := range other.registers {
		s.registers[i] = max(s.registers[i], r)
	}
}

func (s *sketch) estimate() uint64 {
	n := float64(len(s.registers))
	sum, empty := 0.0, 0.0
	for _, r := range s.registers {
		sum += math.Ldexp(1, -int(r))
		if r == 0 {
			empty++
		}
	}
	estimate := 0.7213 / (1 + 1.079/n) * n * n / sum
	if estimate < 2.5*n && empty > 0 {
		estimate = n * math.Log(n/empty) // few values: linear counting
	}
	return uint64(estimate + 0.5)
}
