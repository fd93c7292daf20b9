package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// The size of a recording in characters, and of a character in pixels.
const (
	recordingColumns = 90
	recordingRows    = 14
	cellWidth        = 8.4
	cellHeight       = 20
	margin           = 16
)

// maxStill is the longest time for which a recording shows the same state. Longer times are cut.
const maxStill = 4 * time.Second

// recording is what the live view has shown.
type recording struct {
	frames  []recordedFrame
	changed time.Duration // The time of the last change, other than the number of locks.
	cut     time.Duration
}

type recordedFrame struct {
	at    time.Duration
	lines []line
}

// add records what the live view shows at a time since the begin.
func (r *recording) add(since time.Duration, lines []line) {
	at := since - r.cut
	if len(r.frames) > 0 {
		last := r.frames[len(r.frames)-1].lines
		still := at - r.changed
		switch {
		case slices.Equal(last, lines):
			return
		case !slices.Equal(withoutLocks(last), withoutLocks(lines)):
			if still > maxStill {
				r.cut += still - maxStill
				at = r.changed + maxStill
			}
			r.changed = at
		case still > maxStill:
			return
		}
	}
	r.frames = append(r.frames, recordedFrame{at, lines})
}

// withoutLocks returns the lines that don't count locks.
func withoutLocks(lines []line) []line {
	return slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return strings.HasPrefix(l.text, "Locks") })
}

// record runs the live view without a terminal, with all faults, and writes an animated SVG.
func (s *demo) record(ctx context.Context, path string) error {
	begun := time.Now()
	recorded := &recording{}
	keys := make(chan byte)
	s.out.show("recording")
	l := &live{demo: s, keys: keys, draw: func(v view) {
		recorded.add(time.Since(begun), v.lines(recordingColumns, recordingRows))
	}}
	played := make(chan error, 1)
	go func() {
		defer close(keys)
		played <- l.play(ctx, keys)
	}()
	if err := l.run(ctx); err != nil {
		return err
	}
	if err := <-played; err != nil {
		return err
	}
	return os.WriteFile(path, []byte(recorded.svg()), 0o644)
}

// play presses the keys of a recording. Between two faults, it waits until all members are up.
func (l *live) play(ctx context.Context, keys chan<- byte) error {
	for _, pressed := range "apnn" {
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case keys <- byte(pressed):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := l.awaitIdle(ctx); err != nil {
			return err // The view ignores keys while it injects a fault.
		}
		if pressed == 'n' {
			continue
		}
		if _, _, err := l.awaitStatus(ctx, "all members to be up", waitLong, healthy); err != nil {
			return err
		}
	}
	_, _, err := l.awaitStatus(ctx, "all members to be up", waitLong, healthy)
	select {
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
	}
	return err
}

// awaitIdle waits until the live view has injected a fault and shown what came of it.
func (l *live) awaitIdle(ctx context.Context) error {
	ticker := time.NewTicker(redraw / 5)
	defer ticker.Stop()
	for {
		idle := make(chan bool, 1)
		l.change(ctx, func() { idle <- !l.busy })
		select {
		case now := <-idle:
			if now {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		<-ticker.C
	}
}

// svg returns the recording as an animated SVG. Each line of text is an element that is visible for a part of the animation.
func (r *recording) svg() string {
	end := r.frames[len(r.frames)-1].at + maxStill
	percent := func(at time.Duration) float64 { return 100 * float64(at) / float64(end) }
	var rules, texts strings.Builder
	for rowIndex := range recordingRows {
		for i := 0; i < len(r.frames); {
			shown := r.row(i, rowIndex)
			until := i + 1
			for until < len(r.frames) && r.row(until, rowIndex) == shown {
				until++
			}
			from, to := r.frames[i].at, end
			if until < len(r.frames) {
				to = r.frames[until].at
			}
			name := fmt.Sprintf("r%df%d", rowIndex, i)
			i = until
			if shown.text == "" {
				continue
			}
			class, animated := "s"+string(shown.style), ""
			if from > 0 || to < end {
				fmt.Fprintf(&rules, "@keyframes %s{0%%{visibility:hidden}%.2f%%{visibility:visible}%.2f%%,100%%{visibility:%s}}\n",
					name, percent(from), percent(to), map[bool]string{true: "visible", false: "hidden"}[to == end])
				// Without animations, the last frame is shown.
				hidden := map[bool]string{false: ` visibility="hidden"`}[to == end]
				animated = fmt.Sprintf(hidden+` style="animation:%s %.1fs step-end infinite"`, name, end.Seconds())
			}
			fmt.Fprintf(&texts, `<text class="%s" x="%d" y="%d"%s>%s</text>`+"\n",
				class, margin, margin+cellHeight*rowIndex+15, animated, escape(shown.text))
		}
	}
	width, height := recordingColumns*cellWidth+2*margin, recordingRows*cellHeight+2*margin
	return fmt.Sprintf(svgFrame, width, height, width, height, rules.String(), texts.String())
}

func (r *recording) row(frame, index int) line {
	if lines := r.frames[frame].lines; index < len(lines) {
		return lines[index]
	}
	return line{}
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

// svgFrame has colors for light and dark backgrounds.
const svgFrame = `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %.0f %d" role="img" aria-label="make demo">
<style>
svg{background:#fff}
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:#1f2328}
rect{fill:#f6f8fa;stroke:#d1d9e0}
.s1{font-weight:bold}.s2{fill:#59636e}.s31{fill:#d1242f}.s32{fill:#1a7f37}.s33{fill:#9a6700}
@media(prefers-color-scheme:dark){
svg{background:#0d1117}text{fill:#f0f6fc}rect{fill:#151b23;stroke:#3d444d}
.s2{fill:#9198a1}.s31{fill:#ff7b72}.s32{fill:#3fb950}.s33{fill:#d29922}}
%s</style>
<rect x="0.5" y="0.5" width="99.9%%" height="99.7%%" rx="6"/>
%s</svg>
`
