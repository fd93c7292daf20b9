package dashboard

import (
	"context"
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
)

// axTree is the accessibility tree, without the properties whose values depend on the version of Chromium.
type axTree struct {
	Nodes []struct {
		Ignored bool    `json:"ignored"`
		Role    axValue `json:"role"`
		Name    axValue `json:"name"`
		Node    int64   `json:"backendDOMNodeId"`
	} `json:"nodes"`
}

type axValue struct {
	Value any `json:"value"`
}

// accessible checks what assistive technology gets: each control and picture has a name, there is
// one main heading, identifiers are unique, and texts contrast with their background.
func (b *browser) accessible() {
	b.t.Helper()
	var tree axTree
	b.run("read the accessibility tree", chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, "Accessibility.getFullAXTree", nil, &tree)
	}))
	controls := 0
	for _, n := range tree.Nodes {
		switch role, _ := n.Role.Value.(string); role {
		case "button", "link", "searchbox", "textbox", "image", "img", "table", "region", "navigation":
			if n.Ignored {
				continue
			}
			controls++
			if name, _ := n.Name.Value.(string); strings.TrimSpace(name) == "" {
				b.t.Errorf("got a %s without a name: backend node %d", role, n.Node)
			}
		}
	}
	if controls < 2 {
		b.t.Errorf("got %d controls in the accessibility tree, want those of the page", controls)
	}
	var problems []string
	b.run("check the page", chromedp.Evaluate(checks, &problems))
	for _, problem := range problems {
		b.t.Error(problem)
	}
}

// checks returns a list of problems. 4.5 is the contrast that WCAG demands of texts in level AA.
const checks = `(() => {
	const problems = [];
	if (document.querySelectorAll("h1").length !== 1) problems.push("got no single main heading");
	if (!document.documentElement.lang) problems.push("got no language");
	const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
	if (new Set(ids).size !== ids.length) problems.push("got an identifier twice: " + ids);
	const parse = (color) => {
		const n = color.match(/[\d.]+/g).map(Number);
		return { rgb: n.slice(0, 3), alpha: n[3] ?? 1 };
	};
	const luminance = (rgb) => {
		const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const background = (e) => {
		for (; e; e = e.parentElement) {
			const { rgb, alpha } = parse(getComputedStyle(e).backgroundColor);
			if (alpha === 1) return rgb;
		}
		return [255, 255, 255];
	};
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.textContent.trim() || e.closest("svg, noscript, .visually-hidden") ||
			!e.checkVisibility()) continue;
		const a = luminance(parse(getComputedStyle(e).color).rgb), b = luminance(background(e));
		const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (contrast < 4.5) problems.push("got contrast " + contrast.toFixed(2) + " of " +
			JSON.stringify(e.innerText.slice(0, 40)) + " (" + e.className + "), want 4.5");
	}
	return problems;
})()`
