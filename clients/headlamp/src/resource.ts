import { Crd } from "./headlamp";
import type { Group } from "./group";

const Base = Crd.makeCustomResourceClass({
  apiInfo: [{ group: "conclave.dev", version: "v1" }],
  kind: "ElectionGroup",
  pluralName: "electiongroups",
  singularName: "electiongroup",
  isNamespaced: true,
});

// ElectionGroup is the resource, whose links lead to the pages of this plugin.
export class ElectionGroup extends Base {
  static get detailsRoute() {
    return "conclave-group";
  }
  static get listRoute() {
    return "conclave-groups";
  }
  get group(): Group {
    return this.jsonData;
  }
}
