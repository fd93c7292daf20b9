package transcript

import "github.com/conclave-dev/conclave/internal/diagram"

// StepText describes a step in words.
type StepText struct {
	// Got is the input. Found and Sent are what resulted from it.
	Got         string
	Found, Sent []string
}

// Texts describes the steps one after the other, with the words of WriteText.
func (e *Election) Texts() []StepText {
	n := e.number()
	texts := make([]StepText, 0, len(e.Steps))
	n.replay(func(step diagram.Step) {
		text := StepText{Got: step.Input.DescribeWith(n.name)}
		for _, event := range step.Output.Events {
			text.Found = append(text.Found, event.DescribeWith(n.name))
		}
		for i := range step.Output.Send {
			text.Sent = append(text.Sent, step.Output.Send[i].DescribeWith(n.name))
		}
		texts = append(texts, text)
	})
	return texts
}
