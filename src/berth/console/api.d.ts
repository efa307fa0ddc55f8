// The answers and bodies of /berth/v1, from its OpenAPI description. Written by tools/console_types.py.

declare namespace Api {
  interface ActionChange {
    after: ActionValues | null;
    before: ActionValues | null;
    id: string;
    kind: "action";
  }

  interface ActionValues {
    last_result?: string | null;
    last_step?: string | null;
    left_out?: Array<string>;
    message?: string | null;
    name: string;
    project_id: string;
    request_id: string;
    server: string;
    steps?: number;
    updated_at: string;
    user_id: string;
  }

  interface AggregateChange {
    after: AggregateState | null;
    aggregate: string;
    before: AggregateState | null;
    kind: "aggregate";
  }

  interface AggregateState {
    kind: string | null;
    metadata: Record<string, string>;
    name: string | null;
  }

  interface AggregatesChange {
    after: Array<string>;
    before: Array<string>;
    kind: "provider_aggregates";
    provider: string;
  }

  interface AggregatesPage {
    aggregates: Array<LabelledAggregate>;
    next?: string | null;
  }

  interface AllocationDetail {
    consumer_name: string | null;
    consumer_type: string;
    consumer_uuid: string;
    project_id: string;
    resource_provider_name: string;
    resource_provider_uuid: string;
    resources: Record<string, number>;
    root_provider_uuid: string;
    user_id: string;
  }

  interface Allocations {
    allocations: Array<AllocationDetail>;
    next?: string | null;
  }

  interface Amount {
    capacity: number;
    free: number;
    used: number;
  }

  interface Ask {
    flavor?: string | AskedFlavor | null;
    forbidden?: Array<string>;
    group?: string | null;
    group_policy?: "isolate" | "none";
    hints?: Where;
    image?: string | AskedImage | null;
    in_tree?: string | null;
    member_of?: Array<Array<string>>;
    metadata?: Record<string, string>;
    not_member_of?: Array<string>;
    parts?: Record<string, Part>;
    required?: Array<string>;
    resources?: Record<string, number>;
    same_subtree?: Array<Array<string>>;
    zone?: string | null;
  }

  interface AskedFlavor {
    disk?: number;
    ephemeral?: number;
    extra_specs?: Record<string, string>;
    ram: number;
    swap?: number;
    vcpus: number;
  }

  interface AskedImage {
    properties?: Record<string, string>;
  }

  interface AssignmentChange {
    after: AssignmentValues | null;
    before: AssignmentValues | null;
    id: string;
    kind: "assignment";
  }

  interface AssignmentValues {
    holder: string;
    host: string;
    left_out?: Array<string>;
    server: string;
    units?: Array<string>;
  }

  interface CallerDetail {
    is_admin: boolean;
    project_id: string | null;
    roles: Array<string>;
    rules: Array<string>;
    user_id: string | null;
  }

  interface CandidateDetail {
    allocations: Record<string, Resources>;
    host_name: string;
    host_uuid: string;
    mappings: Record<string, Array<string>>;
  }

  interface CapacityDetail {
    count: number;
    exact: boolean;
    hosts: number;
    index: number;
    places: Array<PlaceCapacityDetail>;
  }

  interface CapacityUse {
    by_cell: Record<string, Record<string, ClassUse>>;
    by_zone: Record<string, Record<string, ClassUse>>;
    total: Record<string, ClassUse>;
  }

  interface CellChange {
    after: CellValues | null;
    before: CellValues | null;
    id: string;
    kind: "cell";
  }

  interface CellDetail {
    conductor_heard: string | null;
    database_reachable: boolean;
    database_text: string | null;
    hosts: CellHosts;
    name: string;
    since: string | null;
    state: "silent" | "unconfigured" | "unknown" | "unreachable" | "well";
    text: string | null;
    waiting: number;
  }

  interface CellHosts {
    disabled: number;
    down: number;
    up: number;
  }

  interface CellValues {
    conductor_heard?: string | null;
    database_reachable: boolean;
    database_text?: string | null;
    left_out?: Array<string>;
    since: string;
  }

  interface Cells {
    cells: Array<CellDetail>;
  }

  interface Change {
    after?: number | null;
    before?: number | null;
    kind: string;
    subject: string;
    text: string;
  }

  interface ChangeGroupBody {
    group: ChangedGroup;
  }

  interface ChangeMembersBody {
    add?: Array<string>;
    remove?: Array<string>;
  }

  interface ChangeStatus {
    host: StatusChange;
  }

  interface ChangedGroup {
    max_per_domain?: number | null;
    max_skew?: number | null;
    name?: string;
    policy?: "affinity" | "anti-affinity" | "soft-affinity" | "soft-anti-affinity";
  }

  interface Check {
    asked: string;
    constraint: string;
    found: string;
    free?: number | null;
    limit?: number | null;
    ok: boolean;
    stock?: Stock | null;
  }

  interface ClassName {
    name: string;
  }

  interface ClassUse {
    capacity: number;
    used: number;
  }

  interface ClusterChange {
    after: ClusterValues | null;
    before: ClusterValues | null;
    id: string;
    kind: "cluster";
  }

  interface ClusterDetail {
    anti_affinity: Array<string>;
    anti_affinity_domain: string;
    anti_affinity_ratio: number;
    created_at: string;
    fault: string | null;
    groups: Array<string>;
    name: string;
    node_groups: Array<ClusterNodeGroup>;
    nodes: Array<ClusterNode>;
    progress: Progress;
    project_id: string;
    state: "active" | "building" | "degraded" | "deleting" | "error" | "replacing" | "scaling";
    updated_at: string;
    user_id: string;
    uuid: string;
  }

  interface ClusterNode {
    fault: string | null;
    group_uuid: string | null;
    host_down: boolean;
    host_id: string | null;
    host_name: string | null;
    index: number;
    name: string;
    node_group: string;
    server_uuid: string;
    state: "leaving" | "replacing" | "wanted";
    status: string;
    task: string | null;
  }

  interface ClusterNodeGroup {
    count: number;
    flavor: string;
    image: string | null;
    name: string;
    needs: Array<NeedDetail> | null;
    processes: Array<string>;
  }

  interface ClusterSummary {
    anti_affinity: Array<string>;
    anti_affinity_domain: string;
    anti_affinity_ratio: number;
    created_at: string;
    fault: string | null;
    name: string;
    progress: Progress;
    project_id: string;
    state: "active" | "building" | "degraded" | "deleting" | "error" | "replacing" | "scaling";
    updated_at: string;
    user_id: string;
    uuid: string;
  }

  interface ClusterValues {
    domain: string;
    fault?: string | null;
    left_out?: Array<string>;
    name: string;
    node_groups?: Record<string, number>;
    nodes: number;
    project_id: string;
    ratio: number;
    state: string;
    updated_at: string;
    user_id: string;
  }

  interface Clusters {
    clusters: Array<ClusterSummary>;
    next?: string | null;
  }

  interface ComputeAggregateChange {
    after: ComputeAggregateValues | null;
    before: ComputeAggregateValues | null;
    id: string;
    kind: "compute_aggregate";
  }

  interface ComputeAggregateValues {
    availability_zone?: string | null;
    left_out?: Array<string>;
    metadata?: Record<string, string>;
    name: string;
    number: number;
    updated_at: string;
  }

  interface ComputeHostChange {
    after: ComputeHostValues | null;
    before: ComputeHostValues | null;
    id: string;
    kind: "compute_host";
  }

  interface ComputeHostValues {
    cell: string;
    complaints: Array<string>;
    driver: string;
    is_forced_down: boolean;
    is_silent: boolean;
    left_out?: Array<string>;
    name: string;
    updated_at: string;
  }

  interface ConflictDetail {
    allocations: Record<string, Record<string, number>>;
    asked: string;
    at: string;
    migration_allocations: Record<string, Record<string, number>>;
  }

  interface ConsumerChange {
    after: ConsumerState | null;
    before: ConsumerState | null;
    consumer: string;
    kind: "consumer";
  }

  interface ConsumerDetail {
    consumer_type: string;
    created_at: string;
    generation: number;
    project_id: string;
    providers: number;
    updated_at: string;
    user_id: string;
    uuid: string;
  }

  interface ConsumerState {
    allocations: Record<string, Record<string, number>>;
    consumer_type: string;
    generation: number;
    project_id: string;
    user_id: string;
  }

  interface Consumers {
    consumers: Array<ConsumerDetail>;
    next?: string | null;
  }

  interface CreateCluster {
    cluster: NewCluster;
  }

  interface CreateGroupBody {
    group: NewGroup;
  }

  interface CreatePoolBody {
    pool: CreatedPool;
  }

  interface CreatedPool {
    aggregates?: Array<string>;
    inventories: Record<string, NewPoolInventory>;
    name: string;
    traits?: Array<string>;
    uuid?: string | null;
  }

  interface DeviceDetail {
    count: number;
    host?: string | null;
    of: string;
    provider?: string | null;
    provider_name?: string | null;
    resource_class: string;
    units?: Array<string> | null;
  }

  interface Devices {
    devices: Array<DeviceDetail>;
  }

  interface Domain {
    kind: string;
    name: string | null;
    uuid: string;
  }

  interface DomainCount {
    domain: string;
    members: number;
    name: string;
  }

  interface DrainChange {
    after: DrainValues | null;
    before: DrainValues | null;
    id: string;
    kind: "drain";
  }

  interface DrainDetail {
    began_at?: string | null;
    host_name: string;
    host_uuid: string;
    moved: number;
    moves: Array<DrainMoveDetail>;
    request_id: string;
    state: "done" | "draining" | "planned";
    stays: Array<StayDetail>;
    stays_total: number;
    updated_at?: string | null;
    user_id: string;
  }

  interface DrainMoveDetail {
    again_at?: string | null;
    attempts?: number;
    destination: string | null;
    how: "cold" | "live" | "offload" | null;
    name: string;
    server: string;
    state: "blocked" | "moving" | "planned" | "waiting";
    text?: string | null;
  }

  interface DrainValues {
    host_name: string;
    left: number;
    left_out?: Array<string>;
    moved: number;
    state: string;
    updated_at: string;
    user_id: string;
  }

  interface Drains {
    drains: Array<DrainDetail>;
    next?: string | null;
  }

  interface Event {
    action: string;
    at: string;
    changes: Array<ResourceClassChange | TraitChange | ProviderChange | VersionChange | InventoryChange | TraitsChange | AggregatesChange | ConsumerChange | AggregateChange | HostChange | GroupChange | MemberChange | ServerChange | MigrationChange | FlavorChange | ImageChange | ActionChange | ComputeHostChange | ComputeAggregateChange | CellChange | ClusterChange | DrainChange | QuotasChange | AssignmentChange | InternalChange | UnreadableChange>;
    global_request_id?: string | null;
    index: number;
    names?: Record<string, string>;
    project: string | null;
    request_id: string;
    user: string | null;
  }

  interface Events {
    complete: boolean;
    events: Array<Event>;
    index: number;
    looked_back_at: string | null;
    looked_back_to: number | null;
    next: number;
  }

  interface Explain {
    count?: number;
    flavor?: string | AskedFlavor | null;
    forbidden?: Array<string>;
    group?: string | null;
    group_policy?: "isolate" | "none";
    hints?: Where;
    hosts?: Array<string>;
    image?: string | AskedImage | null;
    in_tree?: string | null;
    member_of?: Array<Array<string>>;
    metadata?: Record<string, string>;
    not_member_of?: Array<string>;
    parts?: Record<string, Part>;
    required?: Array<string>;
    resources?: Record<string, number>;
    same_subtree?: Array<Array<string>>;
    server?: string | null;
    zone?: string | null;
  }

  interface ExplainedStep {
    asked: string;
    constraint: string;
    hosts: Array<string>;
    left: number;
    nearest: string;
    pools: Array<PoolShortage>;
    removed: number;
  }

  interface ExplanationDetail {
    change: SmallestChange | null;
    fitting: number;
    hosts: Array<HostExplanation>;
    hosts_total: number;
    index: number;
    needed: number;
    refused: string | null;
    steps: Array<ExplainedStep>;
    text: string;
  }

  interface FindingDetail {
    holds: Record<string, Record<string, number>>;
    id: string;
    kind: string;
    repair: string | null;
    sentence: string;
    should_hold: Record<string, Record<string, number>>;
    subject: string;
    unsafe: string | null;
  }

  interface Findings {
    findings: Array<FindingDetail>;
    truncated: boolean;
  }

  interface FlavorChange {
    after: FlavorValues | null;
    before: FlavorValues | null;
    id: string;
    kind: "flavor";
  }

  interface FlavorFit {
    exact: boolean;
    fits: number | null;
    id: string;
    name: string;
    text: string | null;
  }

  interface FlavorValues {
    disk_gb: number;
    ephemeral_gb: number;
    extra_specs?: Record<string, string>;
    is_public: boolean;
    left_out?: Array<string>;
    memory_mb: number;
    name: string;
    projects?: Array<string>;
    swap_mb: number;
    vcpus: number;
  }

  interface GroupChange {
    after: GroupState | null;
    before: GroupState | null;
    group: string;
    kind: "group";
  }

  interface GroupDetail {
    created_at: string;
    domain: string;
    domains: Array<DomainCount>;
    domains_total: number;
    max_per_domain: number | null;
    max_skew: number | null;
    member_count: number;
    members: Array<Member>;
    name: string;
    policy: "affinity" | "anti-affinity" | "soft-affinity" | "soft-anti-affinity";
    project_id: string;
    user_id: string;
    uuid: string;
  }

  interface GroupState {
    domain: string;
    max_per_domain: number | null;
    max_skew: number | null;
    name: string;
    policy: string;
  }

  interface GroupSummary {
    created_at: string;
    domain: string;
    max_per_domain: number | null;
    max_skew: number | null;
    member_count: number;
    name: string;
    policy: "affinity" | "anti-affinity" | "soft-affinity" | "soft-anti-affinity";
    project_id: string;
    user_id: string;
    uuid: string;
  }

  interface GroupsPage {
    groups: Array<GroupSummary>;
    next?: string | null;
  }

  interface HostChange {
    after: HostState | null;
    before: HostState | null;
    kind: "host";
    provider: string;
  }

  interface HostConsumer {
    allocations: Record<string, Record<string, number>>;
    name: string | null;
    project_id: string;
    type: string;
    uuid: string;
  }

  interface HostDetail {
    build_failures: number;
    cell: string | null;
    complaints: Array<string>;
    disabled: boolean;
    domains: Array<Domain>;
    down: boolean;
    driver: string | null;
    last_heartbeat: string | null;
    name: string;
    reason: string | null;
    servers: number;
    state: "disabled" | "down" | "up";
    usage: Record<string, ClassUse>;
    uuid: string;
  }

  interface HostExplanation {
    checks: Array<Check>;
    fits: boolean;
    host: string;
    host_uuid: string | null;
    refused: string | null;
  }

  interface HostNumbers {
    complaining: number;
    disabled: number;
    down: number;
    up: number;
  }

  interface HostState {
    build_failures: number;
    disabled: boolean;
    down: boolean;
    reason: string | null;
  }

  interface HostTreeDetail {
    build_failures: number;
    cell: string | null;
    complaints: Array<string>;
    consumers: Array<HostConsumer>;
    consumers_total: number;
    disabled: boolean;
    domains: Array<Domain>;
    down: boolean;
    driver: string | null;
    last_heartbeat: string | null;
    name: string;
    providers: Array<TreePart>;
    providers_total: number;
    reason: string | null;
    servers: number;
    state: "disabled" | "down" | "up";
    usage: Record<string, ClassUse>;
    uuid: string;
  }

  interface Hosts {
    hosts: Array<HostDetail>;
    index: number;
    next?: string | null;
  }

  interface ImageChange {
    after: ImageValues | null;
    before: ImageValues | null;
    id: string;
    kind: "image";
  }

  interface ImageValues {
    is_hidden?: boolean;
    is_protected?: boolean;
    left_out?: Array<string>;
    name: string | null;
    owner: string;
    properties?: Record<string, string>;
    size?: number | null;
    status: string;
    updated_at: string;
    visibility: string;
  }

  interface InternalChange {
    kind: "internal";
    record: string;
  }

  interface InventoryChange {
    after: InventoryState | null;
    before: InventoryState | null;
    kind: "inventory";
    provider: string;
    resource_class: string;
  }

  interface InventoryState {
    allocation_ratio: number;
    max_unit: number;
    min_unit: number;
    reserved: number;
    step_size: number;
    total: number;
  }

  interface InventoryUse {
    allocation_ratio: number;
    max_unit: number;
    min_unit: number;
    reserved: number;
    step_size: number;
    total: number;
    used: number;
  }

  interface LabelBody {
    aggregate: NewLabel;
  }

  interface LabelledAggregate {
    kind: string | null;
    metadata: Record<string, string>;
    name: string | null;
    providers: number;
    uuid: string;
  }

  interface LastChange {
    action: string;
    at: string;
    changes: Array<ResourceClassChange | TraitChange | ProviderChange | VersionChange | InventoryChange | TraitsChange | AggregatesChange | ConsumerChange | AggregateChange | HostChange | GroupChange | MemberChange | ServerChange | MigrationChange | FlavorChange | ImageChange | ActionChange | ComputeHostChange | ComputeAggregateChange | CellChange | ClusterChange | DrainChange | QuotasChange | AssignmentChange | InternalChange | UnreadableChange>;
    changes_total: number;
    index: number;
    names: Record<string, string>;
    project: string | null;
    request_id: string;
    user: string | null;
  }

  interface Member {
    consumer_uuid: string;
    name: string | null;
    standing: Array<Standing>;
    stands_for: string;
  }

  interface MemberChange {
    after: MemberState | null;
    before: MemberState | null;
    consumer: string;
    kind: "member";
  }

  interface MemberState {
    group: string;
    stands_for: string;
  }

  interface MigrationChange {
    after: MigrationValues | null;
    before: MigrationValues | null;
    id: string;
    kind: "migration";
  }

  interface MigrationValues {
    dest_host: string;
    flavor_after: string;
    flavor_before: string;
    left_out?: Array<string>;
    migration_type: string;
    number: number;
    project_id: string;
    server: string;
    source_host: string;
    status: string;
    updated_at: string;
    user_id: string;
  }

  interface NamedNeedBody {
    forbidden?: Array<string>;
    group_policy?: "isolate" | "none";
    groups?: Array<NeedGroupBody>;
    name: string;
    required?: Array<string>;
    resources?: Record<string, number>;
    same_subtree?: Array<string>;
  }

  interface NeedBody {
    forbidden?: Array<string>;
    group_policy?: "isolate" | "none";
    groups?: Array<NeedGroupBody>;
    required?: Array<string>;
    resources?: Record<string, number>;
    same_subtree?: Array<string>;
  }

  interface NeedDetail {
    allocations: Record<string, Record<string, number>>;
    forbidden: Array<string>;
    group_policy: "isolate" | "none";
    groups: Array<NeedGroupDetail>;
    name: string;
    port: string | null;
    required: Array<string>;
    resources: Record<string, number>;
    same_subtree: Array<string>;
  }

  interface NeedGroupBody {
    forbidden?: Array<string>;
    name: string;
    required?: Array<string>;
    resources: Record<string, number>;
  }

  interface NeedGroupDetail {
    allocations: Record<string, Record<string, number>>;
    forbidden: Array<string>;
    name: string;
    required: Array<string>;
    resources: Record<string, number>;
  }

  interface Needs {
    needs: Array<NeedDetail>;
  }

  interface NewCluster {
    anti_affinity?: Array<string>;
    anti_affinity_domain?: string;
    anti_affinity_ratio?: number;
    name: string;
    node_groups: Array<NewNodeGroup>;
  }

  interface NewDrain {
    dry_run?: boolean;
    reason?: string | null;
  }

  interface NewGroup {
    domain?: string;
    max_per_domain?: number | null;
    max_skew?: number | null;
    members?: Array<string>;
    name: string;
    policy: "affinity" | "anti-affinity" | "soft-affinity" | "soft-anti-affinity";
    uuid?: string | null;
  }

  interface NewLabel {
    kind?: string | null;
    metadata?: Record<string, string>;
    name?: string | null;
  }

  interface NewNodeGroup {
    count: number;
    flavor: string;
    image?: string | null;
    name: string;
    needs?: Array<NamedNeedBody>;
    processes?: Array<string>;
  }

  interface NewPoolInventory {
    allocation_ratio?: number;
    max_unit?: number;
    min_unit?: number;
    reserved?: number;
    step_size?: number;
    total: number;
  }

  interface NewSchedule {
    alternates?: number;
    consumer_type?: string;
    consumers?: Array<string>;
    dry_run?: boolean;
    explain?: boolean;
    flavor?: string | AskedFlavor | null;
    forbidden?: Array<string>;
    group?: string | null;
    group_policy?: "isolate" | "none";
    hints?: Where;
    image?: string | AskedImage | null;
    in_tree?: string | null;
    max_count?: number;
    member_of?: Array<Array<string>>;
    metadata?: Record<string, string>;
    min_count?: number | null;
    not_member_of?: Array<string>;
    parts?: Record<string, Part>;
    project_id?: string | null;
    required?: Array<string>;
    resources?: Record<string, number>;
    same_subtree?: Array<Array<string>>;
    seed?: number | null;
    token?: string | null;
    user_id?: string | null;
    zone?: string | null;
  }

  interface NewStatus {
    build_failures?: number;
    disabled?: boolean;
    down?: boolean;
    reason?: string | null;
  }

  interface OneAggregate {
    aggregate: LabelledAggregate;
  }

  interface OneCapacity {
    capacity: CapacityDetail;
  }

  interface OneCluster {
    cluster: ClusterDetail;
  }

  interface OneDrain {
    drain: DrainDetail;
  }

  interface OneExplanation {
    explanation: ExplanationDetail;
  }

  interface OneGroup {
    group: GroupDetail;
  }

  interface OneHost {
    host: HostDetail;
  }

  interface OneHostTree {
    host: HostTreeDetail;
    index: number;
  }

  interface OneNeed {
    need: NeedDetail;
  }

  interface OneOverview {
    overview: OverviewDetail;
  }

  interface OnePool {
    pool: PoolDetail;
  }

  interface OneServer {
    server: ServerDetail;
  }

  interface OperationDetail {
    attempt: number;
    began: string;
    deadline: string | null;
    destination: string | null;
    fault: string | null;
    host: string | null;
    id: string;
    operation: string;
    overdue: boolean;
    project_id: string;
    request_id: string;
    server: string;
    server_name: string | null;
    source: string | null;
    state: "done" | "failed" | "running";
    step: string | null;
    step_began: string | null;
    steps: Array<OperationStep>;
    updated: string;
    user_id: string;
  }

  interface OperationStep {
    details: string | null;
    finished: string | null;
    host: string | null;
    name: string;
    result: string | null;
    started: string;
  }

  interface Operations {
    operations: Array<OperationDetail>;
    truncated: boolean;
  }

  interface OverviewDetail {
    at: string;
    capacity: CapacityUse;
    doctor_looked_at: string | null;
    flavors: Array<FlavorFit>;
    flavors_counted_at: string | null;
    flavors_total: number;
    hosts: HostNumbers;
    index: number;
    last_changes: Array<LastChange>;
    servers: Record<string, number>;
    servers_total: number;
    wrong: Array<Wrong>;
    wrong_total: Record<string, number>;
  }

  interface Part {
    forbidden?: Array<string>;
    in_tree?: string | null;
    member_of?: Array<Array<string>>;
    not_member_of?: Array<string>;
    required?: Array<string>;
    resources?: Record<string, number>;
  }

  interface PlaceCapacityDetail {
    aggregate: string;
    count: number;
    hosts: number;
    kind: string | null;
    name: string | null;
  }

  interface PlaceState {
    name: string;
    parent_provider_uuid: string | null;
  }

  interface PlacementDetail {
    allocations: Record<string, Resources>;
    alternates: Array<CandidateDetail>;
    consumer_uuid: string;
    host_name: string;
    host_uuid: string;
    mappings: Record<string, Array<string>>;
  }

  interface PoolAggregate {
    kind: string | null;
    name: string | null;
    uuid: string;
  }

  interface PoolDetail {
    aggregates: Array<PoolAggregate>;
    consumers: number;
    generation: number;
    hosts: number;
    inventories: Record<string, PoolInventory>;
    name: string;
    traits: Array<string>;
    uuid: string;
  }

  interface PoolHost {
    name: string;
    uuid: string;
  }

  interface PoolHostsPage {
    hosts: Array<PoolHost>;
    next?: string | null;
  }

  interface PoolInventory {
    allocation_ratio: number;
    capacity: number;
    free: number;
    max_unit: number;
    min_unit: number;
    reserved: number;
    step_size: number;
    total: number;
    used: number;
  }

  interface PoolShortage {
    asked: number;
    capacity: number;
    free: number;
    held?: number;
    pool: string;
    resource_class: string;
  }

  interface PoolsPage {
    next?: string | null;
    pools: Array<PoolDetail>;
  }

  interface Progress {
    leaving: number;
    ready: number;
    wanted: number;
  }

  interface ProviderChange {
    after: PlaceState | null;
    before: PlaceState | null;
    kind: "provider";
    provider: string;
  }

  interface QuotasChange {
    after: QuotasValues | null;
    before: QuotasValues | null;
    id: string;
    kind: "quotas";
  }

  interface QuotasValues {
    left_out?: Array<string>;
    limits: Record<string, number>;
  }

  interface Refusal {
    code: string;
    detail: string;
    explanation?: ExplanationDetail | null;
    fitting_ratio?: number | null;
    oldest_index?: number | null;
    request_id: string;
    start_at?: string | null;
    status: number;
    title: string;
  }

  interface Refusals {
    errors: Array<Refusal>;
  }

  interface Remedy {
    changes: Array<Change>;
    fitting: number;
    host: string | null;
    hosts: number;
  }

  interface Repair {
    dry_run?: boolean;
    findings: Array<string> | "all";
    grace_s?: number;
    remove?: boolean;
  }

  interface Repaired {
    detail: string;
    id: string;
    outcome: "refused" | "removed" | "repaired" | "would remove" | "would repair";
  }

  interface Repairs {
    dry_run: boolean;
    repairs: Array<Repaired>;
  }

  interface ReplaceNode {
    force?: boolean;
  }

  interface ReplacePoolBody {
    pool: ReplacedPool;
  }

  interface ReplacedPool {
    aggregates?: Array<string>;
    generation?: number | null;
    inventories: Record<string, NewPoolInventory>;
    name: string;
    traits?: Array<string>;
  }

  interface ResourceClassChange {
    after: ClassName | null;
    before: ClassName | null;
    kind: "resource_class";
    number: number;
  }

  interface Resources {
    resources: Record<string, number>;
  }

  interface ScaleCluster {
    add?: Array<NewNodeGroup>;
    anti_affinity_ratio?: number | null;
    counts?: Record<string, number>;
    remove?: Array<string>;
  }

  interface Schedule {
    claimed: boolean;
    explanation?: ExplanationDetail | null;
    index: number;
    placements: Array<PlacementDetail>;
    token?: string | null;
  }

  interface ServerChange {
    after: ServerValues | null;
    before: ServerValues | null;
    id: string;
    kind: "server";
  }

  interface ServerDetail {
    added_by_others: Record<string, Record<string, number>>;
    allocations: Record<string, Record<string, number>>;
    conflict: ConflictDetail | null;
    holds: Record<string, Record<string, number>>;
    host: string | null;
    migration: string | null;
    name: string;
    project_id: string;
    state: string;
    task: string | null;
    uuid: string;
  }

  interface ServerValues {
    action?: string | null;
    availability_zone?: string | null;
    cell?: string | null;
    fault?: string | null;
    flavor: string;
    group?: string | null;
    host?: string | null;
    image?: string | null;
    is_locked?: boolean;
    left_out?: Array<string>;
    metadata?: Record<string, string>;
    migration?: string | null;
    name: string;
    power_state: number;
    project_id: string;
    state: string;
    task?: string | null;
    updated_at: string;
    user_id: string;
  }

  interface SetStatus {
    host: NewStatus;
  }

  interface SmallestChange {
    best?: Remedy | null;
    gave_up?: boolean;
    others?: Array<Remedy>;
    text: string;
  }

  interface Standing {
    domains: Array<string>;
    host_name: string;
    host_uuid: string;
  }

  interface StartDrain {
    drain?: NewDrain;
  }

  interface StatusChange {
    build_failures?: number;
    disabled?: boolean;
    reason?: string | null;
  }

  interface StayDetail {
    consumer: string;
    name: string | null;
    text: string;
  }

  interface Stock {
    allocation_ratio: number;
    capacity: number;
    free: number;
    max_unit: number;
    min_unit: number;
    provider: string;
    reserved: number;
    resource_class: string;
    step_size: number;
    total: number;
    used: number;
  }

  interface TraitChange {
    after: string | null;
    before: string | null;
    kind: "trait";
    trait: string;
  }

  interface TraitsChange {
    after: Array<string>;
    before: Array<string>;
    kind: "provider_traits";
    provider: string;
  }

  interface TreePart {
    aggregates: Array<string>;
    generation: number;
    inventories: Record<string, InventoryUse>;
    name: string;
    parent: string | null;
    traits: Array<string>;
    uuid: string;
  }

  interface UnreadableChange {
    event: string;
    kind: "unreadable";
  }

  interface Usage {
    by: string;
    next?: string | null;
    usage: Array<UsageRow>;
  }

  interface UsageRow {
    consumers?: number | null;
    key: string;
    name?: string | null;
    resources?: Record<string, Amount> | null;
    used?: Record<string, number> | null;
  }

  interface Version {
    generation: number;
    updated_at: string;
  }

  interface VersionChange {
    after: Version;
    before: Version;
    kind: "provider_version";
    provider: string;
  }

  interface Where {
    different_host?: Array<string>;
    forced_host?: string | null;
    host_names?: Array<string>;
    ignore_hosts?: Array<string>;
    same_host?: Array<string>;
  }

  interface Wrong {
    kind: "cell_unreachable" | "conductor_silent" | "doctor" | "host_complaining" | "host_down" | "operation_overdue" | "server_in_error";
    name: string | null;
    object: string;
    since: string | null;
    text: string;
    what_to_do: string;
  }
}
